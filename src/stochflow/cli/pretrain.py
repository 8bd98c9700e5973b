"""`stochflow pretrain`."""

from typing import Any

from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, print_summary, progress_line, tell
from stochflow.config.options import PRETRAIN, arguments_of
from stochflow.core.signals import importing
from stochflow.environments.settings import check_settings, pretraining_layers, resolve_layers


@takes(*PRETRAIN)
def pretrain(**given: Any) -> None:
    """Train one sampler for several tasks; `stochflow train --from RUN --support N` goes on from it."""
    arguments = arguments_of(PRETRAIN, given)
    layers = pretraining_layers(arguments)
    if not given["resume"]:  # which has settings of its own
        check_settings(resolve_layers(layers))
    with importing():
        from stochflow import api
    with progress_line("step") as listen:
        run = api.pretrain(**arguments, listen=listen)
    print_summary(run.summary)
    if run.summary.status == "interrupted":
        tell(f"Stopped early; continue with `stochflow pretrain --resume --out {escape(str(run.path))}`.")
    path = escape(str(run.path))
    console.print(
        f"Run directory: {path} (go on with `stochflow train TASK --from {path} --support N`)",
        highlight=False,
        soft_wrap=True,
    )
