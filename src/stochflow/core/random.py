"""Named random streams from one seed, which can be saved and restored."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

STREAMS = ("init", "policy", "channel", "replay", "evaluation")


class RandomStreams(Mapping[str, torch.Generator]):
    """Independent CPU generators derived from one seed, one per purpose.

    Separate streams keep purposes independent: a longer evaluation does not change the training that follows it.

    >>> streams = RandomStreams(seed=0)
    >>> list(streams)
    ['init', 'policy', 'channel', 'replay', 'evaluation']
    >>> first = torch.rand(2, generator=streams["policy"])
    >>> torch.equal(first, torch.rand(2, generator=RandomStreams(seed=0)["policy"]))
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams = {
            name: torch.Generator().manual_seed((seed * len(STREAMS) + index) % 2**63)
            for index, name in enumerate(STREAMS)
        }

    def __getitem__(self, name: str) -> torch.Generator:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def state_dict(self) -> dict[str, Tensor]:
        """State of every stream, as byte tensors."""
        return {name: generator.get_state() for name, generator in self._streams.items()}

    def load_state_dict(self, states: dict[str, Tensor]) -> None:
        for name, generator in self._streams.items():
            generator.set_state(states[name])
