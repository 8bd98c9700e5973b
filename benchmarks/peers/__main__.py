"""stochflow beside its peers, alternately and on one core. Part by part, all parts without a choice.

python -m benchmarks.peers [--part steps]
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.peers import results
from benchmarks.peers.processes import ROOT, Peers, Row, use_one_core, work
from benchmarks.peers.reward import write_log_rewards
from benchmarks.peers.settings import (
    BATCHES,
    BETA,
    DIMENSIONS,
    FLOOR,
    ITERATIONS,
    NUM_BITS,
    PATIENCE,
    REFERENCE_BUDGETS,
    SIDE,
    SYSTEMS,
    WARM_UP,
    WORD_BITS,
)
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.bits import BitSequences
from stochflow.environments.sequences.tfbind8 import TFBind8

FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "performance.md"


def measure_steps(peers: Peers, given: argparse.Namespace, ground: str = "tfbind8") -> Iterator[Row]:
    """Every system and batch in every round; who begins changes from round to round."""
    for number in range(given.rounds):
        turn = number % len(SYSTEMS)
        for batch in given.batches:
            for system in (*SYSTEMS[turn:], *SYSTEMS[:turn]):
                arguments = [
                    "--batch",
                    batch,
                    "--iterations",
                    round(PATIENCE[ground] * ITERATIONS[batch]),
                    "--warm-up",
                    round(PATIENCE[ground] * WARM_UP),
                    "--seed",
                    number,
                ]
                for row in work(peers.command(system, ground), arguments):
                    yield {"system": system, "batch": batch, "round": number, **row}


def measure_curve(peers: Peers, system: str, curve: str | None, seeds: int) -> Iterator[Row]:
    """One run per seed with exact figures along the way."""
    for seed in range(seeds):
        arguments = ["--curve", *([] if curve is None else [curve]), "--seed", seed]
        for row in work(peers.command(system), arguments):
            yield {"system": curve or system, "seed": seed, **row}


def measure_quality(peers: Peers, given: argparse.Namespace) -> Iterator[Row]:
    for curve in ("gfn-tb", "sgfn-kl"):
        yield from measure_curve(peers, "ours", curve, given.seeds)


def measure_reference(peers: Peers, given: argparse.Namespace) -> Iterator[Row]:
    for steps in REFERENCE_BUDGETS:
        yield from measure_curve(peers, "ours", f"sgfn-db-{steps}", given.rival_seeds)


PARTS: dict[str, Callable[[Peers, argparse.Namespace], Iterator[Row]]] = {
    "steps": measure_steps,
    "steps-bits": partial(measure_steps, ground="bits"),
    "steps-hypergrid": partial(measure_steps, ground="hypergrid"),
    "quality-gfnx": lambda peers, given: measure_curve(peers, "gfnx", None, given.seeds),
    "quality-ours": measure_quality,
    "regret-ours": lambda peers, given: measure_curve(peers, "ours", "sgfn-kl-noise", given.seeds),
    "regret-reference": measure_reference,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--part", choices=[*PARTS, "report"], action="append", help="repeatable; all by default")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--batches", type=int, nargs="+", choices=BATCHES, default=list(BATCHES))
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rival-seeds", type=int, default=1, help="the reference takes minutes per seed")
    options.add_argument("--core", type=int, help="core to run on; the last by default")
    options.add_argument("--environment", type=Path, default=ROOT / ".venv-peers", help="where the peers are")
    options.add_argument("--out", type=Path, default=FOLDER, help="folder of the result files")
    options.add_argument("--page", type=Path, default=PAGE, help="page that shows the tables; the plot goes beside it")
    given = options.parse_args()
    use_one_core(given.core)
    given.out.mkdir(parents=True, exist_ok=True)
    stored = given.out / "peers.json"
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(given.environment, Path(folder))
        tell(peers)
        for part in given.part or PARTS:
            if part != "report":
                rows = []
                for row in PARTS[part](peers, given):
                    rows.append(row)
                    print(part, *(f"{name}={_short(value)}" for name, value in row.items()), flush=True)
                results.store(stored, part, rows)
    publish(given.out, given.page, peers)


def tell(peers: Peers) -> None:
    """Write down what all systems are rewarded for: log R of every design, or the modes that it falls off from."""
    log_rewards = Reward(BETA, FLOOR, ramp=0.0).log_reward(TFBind8().all_scores)
    write_log_rewards(peers.reward("tfbind8"), log_rewards.numpy())
    write_log_rewards(peers.reward("bits"), BitSequences(NUM_BITS, WORD_BITS).modes.numpy())
    scores = hypergrid(f"{DIMENSIONS},{SIDE}", slip=0.0).scores
    write_log_rewards(peers.reward("hypergrid"), scores.log().numpy())


def publish(folder: Path, page: Path, peers: Peers) -> None:
    """Tables and curves of everything measured so far."""
    parts = results.read(folder / "peers.json")
    text = results.report(parts)
    print("\n" + text)
    (folder / "peers.txt").write_text(text, encoding="utf-8")
    results.insert(page, text)
    curves = folder / "peers_curves.csv"
    results.write_curves(curves, parts)
    python, plot = peers.folder.absolute() / "bin" / "python", page.absolute().with_suffix(".svg")
    subprocess.run([python, "-m", "benchmarks.peers.plot", curves.absolute(), plot], cwd=ROOT, check=True)


def _short(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
