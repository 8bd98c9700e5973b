"""The replay buffer: the latest trajectories, kept for further updates."""

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Bools
from stochflow.models.dynamics.tabular import Codes, code_kind, transition_codes
from stochflow.sampling.trajectories import Trajectories

MAX_TOKENS = 2**8  # a token is kept as one byte


class ReplayBuffer:
    """The last `capacity` trajectories, in preallocated tensors that are overwritten in turn.

    Attributes:
        all_real: True while nothing was added but trajectories whose steps are all decisions.
    """

    def __init__(self, capacity: int, length: int) -> None:
        self.capacity = capacity
        self._columns = {
            "intentions": torch.zeros(capacity, length, dtype=torch.uint8),
            "outcomes": torch.zeros(capacity, length, dtype=torch.uint8),
            "valid": torch.zeros(capacity, length, dtype=torch.bool),
            "scores": torch.zeros(capacity, dtype=torch.float64),
        }
        # the same as numpy sees them, whose copies of a few rows cost a fraction of torch's
        self._arrays = [column.numpy() for column in self._columns.values()]
        self._codes: Codes | None = None
        self._num_tokens = 0
        self.all_real = True
        self.num_added = 0

    def __len__(self) -> int:
        return min(self.num_added, self.capacity)

    def encode(self, num_tokens: int) -> None:
        """Keep the `transition_codes` of all steps too: `sample_codes` draws each step many times."""
        shape = self._arrays[0].shape
        self._codes, self._num_tokens = np.zeros(shape, code_kind(shape[1] * num_tokens**2)), num_tokens
        self._encode_all()

    def _encode_all(self) -> None:
        if self._codes is not None:
            intentions, outcomes = (each[: len(self)] for each in self._arrays[:2])
            self._codes[: len(self)] = transition_codes(intentions, outcomes, self._num_tokens)

    def add(self, batch: Trajectories) -> None:
        """Append a batch; of one larger than the capacity the last rows stay."""
        keep = min(len(batch), self.capacity)
        skipped = len(batch) - keep
        first = (self.num_added + skipped) % self.capacity
        before_end = min(keep, self.capacity - first)
        columns = [each.numpy() for each in (batch.intentions, batch.outcomes, batch.valid, batch.scores)]
        tables = self._arrays
        if self._codes is not None:
            tables = [*tables, self._codes]
            columns.append(transition_codes(columns[0], columns[1], self._num_tokens))
        for table, rows in zip(tables, columns, strict=True):
            table[first : first + before_end] = rows[skipped : skipped + before_end]
            if before_end < keep:
                table[: keep - before_end] = rows[skipped + before_end :]
        self.num_added += len(batch)
        self.all_real = self.all_real and bool(columns[2].all())

    def newest(self, num: int, column: str = "intentions") -> Tensor:
        """Intentions or outcomes of the last trajectories, at most `num`, as bytes, [num, time]."""
        rows = torch.arange(self.num_added - min(num, len(self)), self.num_added) % self.capacity
        return self._columns[column][rows]

    def sample(self, num: int, generator: torch.Generator) -> Trajectories:
        """Trajectories drawn uniformly with replacement, [num, time]."""
        rows = self._draw((num,), generator)
        intentions, outcomes, valid, scores = (column[rows] for column in self._columns.values())
        return Trajectories(intentions.long(), outcomes.long(), valid, scores, torch.zeros(outcomes.shape))

    def sample_codes(self, draws: int, num: int, generator: torch.Generator) -> tuple[Codes, Bools | None]:
        """What `encode` keeps of the steps, and which are real, of so many draws in turn; [draws, num, time] each.

        The same trajectories as from as many calls of `sample`; None where all steps are real.
        """
        if self._codes is None:
            raise ValueError("no transition codes are kept; call encode before sampling them")
        rows = self._draw((draws, num), generator).numpy()
        return self._codes.take(rows, axis=0), None if self.all_real else self._arrays[2].take(rows, axis=0)

    def _draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        if not len(self):
            raise ValueError("the replay buffer is empty; add a batch before sampling from it")
        return torch.randint(len(self), shape, generator=generator)

    def state_dict(self) -> dict[str, Tensor]:
        """Only the rows in use, with the counter that says where the next one goes."""
        used = {name: column[: len(self)].clone() for name, column in self._columns.items()}
        return used | {"num_added": torch.tensor(self.num_added)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.num_added = int(state["num_added"])
        for name, column in self._columns.items():
            column[: len(self)] = state[name]
        self.all_real = bool(self._columns["valid"][: len(self)].all())
        self._encode_all()
