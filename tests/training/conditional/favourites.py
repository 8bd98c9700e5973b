"""Three small tasks of one shape, two of which a sampler is pre-trained on."""

from typing import Any

import torch
from torch import Tensor

from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment

NAMES = ["favourite-0", "favourite-1"]
SETTINGS: dict[str, Any] = {
    "task": "pretraining",
    "method": "conditional-kl",
    "channel": {"noise": 0.2},
    "reward": {"beta": 2.0},
    "model": {"kmers": [1, 2], "width": 32, "num_layers": 1},
    "pretraining": {"tasks": NAMES, "support_size": 24, "context_width": 16, "rows_per_level": 27},
    "budget": {"steps": 250},
}


class Favourite(Task):
    """Words score by how often one letter comes, early places counting more."""

    description, alphabet, length, mode_threshold = "a test task", Alphabet("ABC"), 4, 0.9

    def __init__(self, letter: int, renamed: Tensor | None = None) -> None:
        self.name = f"favourite-{letter}"
        self._letter = letter if renamed is None else int(renamed[letter])

    def score(self, tokens: Tensor) -> Tensor:
        places = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        return 0.05 + 0.95 * ((tokens == self._letter) * places).sum(dim=-1)


def pretraining(*layers: dict[str, Any]) -> Experiment:
    """A pre-training run that has not begun."""
    return build(resolve_layers([SETTINGS, *layers]))
