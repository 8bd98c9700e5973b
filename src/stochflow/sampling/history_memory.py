"""Scores of designs that several histories may write: each design is paid for once, whatever way it was made."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.sampling.score_memory import ScoreMemory

Canonical = Callable[[Tensor], Tensor]


class HistoryMemory(ScoreMemory):
    """Cache of scores by history, where several histories write one design: a design goes to the oracle once.

    Attributes:
        trie: all prefixes of the histories seen.
        scores: score of the design of each history, float64, [num_histories].
    """

    def __init__(self, num_tokens: int, length: int, canonical: Canonical, reward: Reward | None = None) -> None:
        super().__init__(num_tokens, length, reward)
        self._table = None  # the designs have one
        self._canonical = canonical
        self._designs = ScoreMemory(num_tokens, length, reward)
        self._places = torch.empty(0, dtype=torch.int64)  # which design each history writes, [num_histories]

    @property
    def designs(self) -> ScoreMemory:
        return self._designs

    @property
    def num_calls(self) -> int:
        return self._designs.num_calls

    def best_scores(self, num: int) -> Tensor:
        return self._designs.best_scores(num)

    def canonical(self, sequences: Tensor) -> Tensor:
        return self._canonical(sequences)

    def asks(self, sequences: Tensor) -> Tensor:
        return self._designs.asks(self.canonical(sequences))

    def pay(self, sequences: Tensor, oracle: Callable[[Tensor], Tensor]) -> Tensor:
        plain = self.canonical(sequences)
        scores = self._designs.pay(plain, oracle)
        indices = self.trie.insert(sequences)
        self._places = torch.cat([self._places, torch.empty(len(self.trie) - len(self._places), dtype=torch.int64)])
        self._places[indices] = self._designs.trie.find(plain)
        # a noisy oracle changes the means of designs that were seen before
        self._scores = self._designs.scores[self._places]
        return scores

    def lookup(self, sequences: Tensor) -> Tensor:
        return self._designs.lookup(self.canonical(sequences))

    def state_dict(self) -> dict[str, Tensor]:
        designs = {f"designs.{name}": tensor for name, tensor in self._designs.state_dict().items()}
        return {**designs, **self.trie.state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        own = {name: tensor for name, tensor in state.items() if not name.startswith("designs.")}
        kept = {name.removeprefix("designs."): state[name] for name in state if name not in own}
        self.trie.load_state_dict(own)
        self._designs.load_state_dict(kept)
        self._places = self._designs.trie.find(self.canonical(self.trie.sequences))
        self._scores = self._designs.scores[self._places]
