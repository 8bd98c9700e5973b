"""Encoding of strings of different lengths as rows of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.sequences.variable_length.rules import LengthRules


@dataclass(frozen=True)
class StopAlphabet(Alphabet):
    """Letters, the stop, and the tokens of edits: a gap and doubled letters. `decode` gives the string of a history.

    >>> alphabet = StopAlphabet("AB", LengthRules(num_letters=2, min_length=1, max_length=3))
    >>> alphabet.encode(["B", "ABA"])
    tensor([[1, 2, 2],
            [0, 1, 0]])
    >>> alphabet.decode(alphabet.encode(["B", "ABA"]))
    ['B', 'ABA']
    """

    rules: LengthRules

    def __len__(self) -> int:
        return self.rules.num_tokens

    @property
    def labels(self) -> list[str]:
        gap = ["gap"] * (self.rules.deletion > 0)
        doubles = [2 * letter for letter in self.letters] * (self.rules.duplication > 0)
        return [*self.letters, "stop", *gap, *doubles]

    def encode(self, sequences: Sequence[str]) -> Tensor:
        """Tokens of strings, the stop after the last letter, int64, [num_sequences, max_length]."""
        longest = max(map(len, sequences), default=0)
        if longest > self.rules.max_length:
            raise DataError(
                f"a sequence has {longest} letters, and designs have {self.rules.max_length} at most; raise "
                "--max-length or leave it out"
            )
        tokens = torch.full((len(sequences), self.rules.max_length), self.rules.stop)
        lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
        places = torch.arange(self.rules.max_length) < lengths.unsqueeze(-1)
        if not sequences:
            return tokens
        # all letters as one row, so that the plain alphabet encodes and validates them
        tokens[places] = Alphabet(self.letters).encode(["".join(sequences)]).flatten()
        return tokens

    def decode(self, tokens: Tensor) -> list[str]:
        """Strings of histories: a gap is empty, a double is a letter twice, and nothing follows the stop."""
        gap = [""] * (self.rules.deletion > 0)
        doubles = [2 * letter for letter in self.letters] * (self.rules.duplication > 0)
        pieces = np.array([*self.letters, "", *gap, *doubles])
        _, stopped = self.rules.progress(tokens.cpu())
        written = np.where(stopped[:, :-1].numpy(), "", pieces[tokens.cpu().numpy()])
        return ["".join(row) for row in written]
