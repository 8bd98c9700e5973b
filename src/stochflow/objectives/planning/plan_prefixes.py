"""Which prefixes are planned on, and trajectories that follow the plan on them."""

import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.codes import decode
from stochflow.core.logspace import masked_log_softmax, safe_log
from stochflow.models.base import Sampler
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.sampling.score_memory import ScoreMemory


class PlanSampler:
    """The plan's policy on planned prefixes, the network's beyond them."""

    def __init__(self, trie: PrefixTrie, policies: list[Tensor], beyond: Sampler, batch_size: int) -> None:
        self._trie, self._policies, self._beyond = trie, policies, beyond
        self._nodes = torch.zeros(batch_size, dtype=torch.int64)
        self._depth = 0

    def log_policy(self) -> Array:
        table = self._policies[self._depth]
        # the trie has grown since the plan was made: newer nodes have no row in it
        planned = (self._nodes >= 0) & (self._nodes < len(table))
        log_planned = safe_log(table[self._nodes[planned]])
        if len(log_planned) == len(planned):  # no need to ask the network
            log_policy = log_planned
        else:
            log_policy = torch.from_numpy(self._beyond.log_policy()).double()
            log_policy[planned] = log_planned
        allowed = self.allowed()
        return (log_policy if allowed is None else masked_log_softmax(log_policy, allowed)).numpy()

    def allowed(self) -> Tensor | None:
        return self._beyond.allowed()

    def advance(self, outcomes: Array) -> None:
        self._nodes = self._trie.step(self._nodes, torch.from_numpy(outcomes), self._depth)
        self._depth += 1
        self._beyond.advance(outcomes)


def chosen_sequences(memory: ScoreMemory, max_entries: int) -> Tensor | None:
    """None when the whole trie has at most so many prefixes × letters; otherwise which sequences to plan on, [num].

    One half are the best, the other half the newest: they hold what matters and what was learned last. Everything else
    counts through the reward model and the flow head.
    """
    trie = memory.trie
    if sum(level.numel() for level in trie.children) <= max_entries:
        return None
    num = min(max(max_entries // (trie.num_tokens * trie.length), 2), len(memory))
    best = memory.scores.topk(num // 2).indices
    newest = torch.arange(len(memory) - (num - num // 2), len(memory))
    return torch.cat([best, newest]).unique()


def whole_trie(num_tokens: int, length: int) -> PrefixTrie:
    """The trie of all sequences.

    >>> whole_trie(2, 3).sequences[:3].tolist()
    [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    """
    trie = PrefixTrie(num_tokens, length)
    trie.insert(decode(torch.arange(num_tokens**length), num_tokens, length))
    return trie
