"""Environments as runs have them: with a task that predicts where a table of the user's own is evidence."""

import warnings
from typing import Any

from stochflow.config.schema import Config
from stochflow.core.errors import Note
from stochflow.environments.channel_factory import make_channel
from stochflow.environments.factory import Configured, configure, with_table_pinned
from stochflow.environments.sequences.oracles.task import OracleFunction
from stochflow.environments.sequences.user_table import Table
from stochflow.environments.settings import Layers, check_settings, resolve_layers
from stochflow.environments.table_world import num_possible, sentence
from stochflow.experiments.torch_settings import torch_threads
from stochflow.surrogates.predicted_task import PredictedTask

# Predicted scores of most designs lie in the middle of [0, 1]: with a small β the many mediocre ones outweigh the best.
MEASURED: dict[str, Any] = {"reward": {"beta": 10.0}}
MANY = 2**18  # designs, beyond which no plan covers the space
# There sgfn-kl spends its time on a surrogate of its own, and predictions need none. Of whole orders under noise, whose
# outcomes nobody sees on the way, a squared residual settles at exp E[log R] of what comes (docs/how-to/orders.md).
LARGE, LARGE_ORDERS = {"method": "sgfn-kl-trajectory"}, {"method": "gfn-tb"}


def configured_world(config: Config, function: OracleFunction = None, table: Table | None = None) -> Configured:
    """What settings describe; the surrogates of a measured table are fitted here, always in the same way.

    Args:
        table: that of the settings, if it was read already.
    """
    with torch_threads(config.threads):
        return configure(config, function, PredictedTask, table)


def resolve_world(layers: Layers) -> tuple[Config, Table | None]:
    """One checked config, with the defaults of a measured table below the layers that name one; and the table."""
    config = resolve_layers(layers)
    if config.table.file is None:
        return config, None
    check_settings(config)
    pinned, table = with_table_pinned(config)
    assert table is not None
    if pinned.table.world != "measured":
        return config, table
    return resolve_layers([MEASURED | _method_of_large(pinned, table), *layers]), table


def _method_of_large(config: Config, table: Table) -> dict[str, Any]:
    """The method by default in a space that no plan covers; nothing in a smaller one."""
    if num_possible(config, table) <= MANY:
        return {}
    if config.feedback == "step":
        return LARGE
    length = max(table.lengths)
    return (
        LARGE if make_channel(config.channel, len(table.letters), length, table.letters).is_noiseless else LARGE_ORDERS
    )


def say_world(given: Config, configured: Configured) -> None:
    """Say how a table with gaps was understood, where the user has not said how to."""
    config, table = configured.config, configured.table
    if table is not None and given.table.world is None and config.table.world == "measured":
        warnings.warn(sentence(config, table), Note, stacklevel=3)
