"""One sampler for many tasks: it reads a few measured sequences of a task and designs for that task."""

from stochflow.experiments.conditional.sampler import ConditionalSampler, ConditionalSettings
from stochflow.experiments.conditional.support import Support, draw_support
from stochflow.experiments.conditional.training import PlannedTasks, fine_tuning, train_conditional

__all__ = [
    "ConditionalSampler",
    "ConditionalSettings",
    "PlannedTasks",
    "Support",
    "draw_support",
    "fine_tuning",
    "train_conditional",
]
