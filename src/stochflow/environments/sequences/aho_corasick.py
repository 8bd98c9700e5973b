"""Aho–Corasick automata: which words of a set end at each letter of a sequence."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Word = tuple[int, ...]


class WordAutomaton(NamedTuple):
    """The Aho–Corasick automaton of a set of words over K tokens. A node is a prefix of words; node 0 is the empty one.

    Attributes:
        moves: node after one more token, the longest prefix of a word that is a suffix of what was read, [nodes, K].
        ends: node of each word, in the order of the words.
        suffixes: node of the longest proper suffix that is a node too, by node.
        order: all nodes, shorter ones first.
    """

    moves: Tensor
    ends: list[int]
    suffixes: list[int]
    order: list[int]

    def spread(self, marks: Tensor) -> Tensor:
        """The largest mark of a node and of all its suffixes: what ends where the node ends; [nodes, ...], the same."""
        spread = marks.numpy().copy()
        for node in self.order:
            spread[node] = np.maximum(spread[node], spread[self.suffixes[node]])
        return torch.from_numpy(spread)


def aho_corasick(words: Sequence[Word], num_tokens: int) -> WordAutomaton:
    """The automaton that finds all words in one pass (Aho and Corasick 1975).

    >>> found = aho_corasick([(0, 1), (1, 1)], num_tokens=2)
    >>> found.moves.tolist()
    [[1, 3], [1, 2], [1, 4], [1, 4], [1, 4]]
    >>> found.ends
    [2, 4]
    """
    children: list[dict[int, int]] = [{}]
    ends = []
    for word in words:
        node = 0
        for token in word:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
            node = children[node][token]
        ends.append(node)
    moves = [[0] * num_tokens for _ in children]
    suffixes, order, pending = [0] * len(children), [], deque([0])
    while pending:
        node = pending.popleft()
        order.append(node)
        for token in range(num_tokens):
            # the longest proper suffix is shorter and so complete already
            beyond = moves[suffixes[node]][token] if node else 0
            child = children[node].get(token)
            moves[node][token] = beyond if child is None else child
            if child is not None:
                suffixes[child] = beyond
                pending.append(child)
    return WordAutomaton(torch.tensor(moves), ends, suffixes, order)
