"""One sampler for several tasks: it reads a few measured sequences of a task, its support set, and designs for it.

`ConditionalKL` is the objective that pre-trains it on tasks with known tables; runs that begin with it are started by
`experiments.fine_tuning`.
"""

from stochflow.training.conditional.pretraining import ConditionalKL
from stochflow.training.conditional.sampler import ConditionalPolicy, ConditionalSampler
from stochflow.training.conditional.support import Support, draw_support

__all__ = ["ConditionalKL", "ConditionalPolicy", "ConditionalSampler", "Support", "draw_support"]
