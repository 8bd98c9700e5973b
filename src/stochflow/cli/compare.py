"""`stochflow compare`."""

import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import messages, print_comparison, tell
from stochflow.config.options import AS_JSON, COMPARE, arguments_of
from stochflow.core.signals import importing
from stochflow.experiments.sweep.config import DEFAULT_OUT, check_specification, requested, specify

if TYPE_CHECKING:
    from stochflow.experiments.sweep.compare import Comparison

INTERRUPTED = 130


@takes(*COMPARE, AS_JSON)
def compare(**given: Any) -> None:
    """Compare methods over tasks, noise and seeds with equal budgets; the same command again goes on."""
    arguments = arguments_of(COMPARE, given)
    out = arguments["out"] or DEFAULT_OUT
    check_specification(specify(out, requested(arguments), arguments["address"]))
    with importing():
        from stochflow.experiments.sweep.compare import compare as compare_methods
        from stochflow.experiments.sweep.progress import Board
    with Board(messages) as board:
        found = compare_methods(**arguments, listen=board.show if messages.is_terminal else None)
    num_finished = int((found.frame["status"] == "finished").sum())
    if given["as_json"]:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        print_comparison(found, out, num_finished)
    for name, error in found.failures.items():
        tell(f"[bold red]Failed:[/] {escape(name)}: {escape(error)}")
    if found.interrupted:
        again = shlex.join([str(out), *_named(arguments["oracle"], arguments["address"])])
        tell(
            f"Stopped with {len(found.missing)} of {len(found.missing) + num_finished} runs to go; go on with "
            f"`stochflow compare --out {escape(again)}`."
        )
        sys.exit(INTERRUPTED)
    sys.exit(1 if found.failures else 0)


def _named(oracles: list[str], address: str | None) -> list[str]:
    """What must be named again to go on with a comparison."""
    named = [part for name in oracles for part in ("--oracle", name)]
    return named if address is None else [*named, "--address", address]


def _as_dict(found: "Comparison") -> dict[str, Any]:
    return {
        "out": str(found.path),
        "specification": found.spec.model_dump(mode="json"),
        "standings": [asdict(standing) for standing in found.standings],
        "failed": found.failures,
        "missing": found.missing,
    }
