"""The prefixes of all sequences seen so far, as child tables that grow."""

import torch
from torch import Tensor

from stochflow.core.codes import first_rows


class PrefixTrie:
    """Level t numbers the distinct prefixes of length t, batch by batch; level L are the sequences themselves.

    Time and memory are linear in the number of stored prefixes, whatever the size of the space.

    Attributes:
        children: per level t < L, node of the next level for every token or −1, int32, [num_nodes, K].
        sequences: distinct sequences by number, [num_sequences, L]; a later batch has higher numbers.
        examples: per level, the index of one sequence that starts with the node's prefix, [num_nodes].
    """

    def __init__(self, num_tokens: int, length: int) -> None:
        self.num_tokens, self.length = num_tokens, length
        self.children = [torch.empty(0, num_tokens, dtype=torch.int32) for _ in range(length)]
        self.children[0] = torch.full((1, num_tokens), -1, dtype=torch.int32)
        self.sequences = torch.empty(0, length, dtype=torch.int64)
        self.examples = [torch.empty(0, dtype=torch.int64) for _ in range(length + 1)]

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def num_nodes(self) -> int:
        """Stored prefixes of all lengths, complete sequences and the empty prefix included."""
        return sum(len(level) for level in self.children) + len(self)

    def find(self, prefixes: Tensor) -> Tensor:
        """Node of each prefix on its level, −1 where it was never seen; [batch, t] → [batch]."""
        nodes = torch.zeros(len(prefixes), dtype=torch.int64)
        for depth in range(prefixes.shape[1]):
            nodes = self.step(nodes, prefixes[:, depth], depth)
        return nodes

    def step(self, nodes: Tensor, tokens: Tensor, depth: int) -> Tensor:
        """Child of each node of level `depth` under a token; −1 stays −1. [batch] → [batch]."""
        table = self.children[depth]
        if not len(table):
            return torch.full_like(nodes, -1)
        return torch.where(nodes < 0, -1, table[nodes.clamp_min(0), tokens]).long()

    def insert(self, sequences: Tensor) -> Tensor:
        """Store sequences, [batch, L]; returns the index of each among the distinct ones, [batch]."""
        nodes = torch.zeros(len(sequences), dtype=torch.int64)
        arrivals: list[Tensor] = []
        for depth in range(self.length):
            slots = nodes * self.num_tokens + sequences[:, depth]
            table = self.children[depth].view(-1)
            missing = (table[slots] < 0).nonzero().squeeze(-1)
            new_slots, which = slots[missing].unique(return_inverse=True)
            last = depth + 1 == self.length
            first_node = len(self) if last else len(self.children[depth + 1])
            table[new_slots] = first_node + torch.arange(len(new_slots), dtype=torch.int32)
            # the batch row that brought each new node, the earliest if several did
            arrivals.append(first_rows(which, len(new_slots), missing))
            if not last:
                blank = torch.full((len(new_slots), self.num_tokens), -1, dtype=torch.int32)
                self.children[depth + 1] = torch.cat([self.children[depth + 1], blank])
            nodes = table[slots].long()
        self.sequences = torch.cat([self.sequences, sequences[arrivals[-1]]])
        if not len(self.examples[0]) and len(sequences):
            self.examples[0] = torch.zeros(1, dtype=torch.int64)
        for depth, rows in enumerate(arrivals, start=1):
            self.examples[depth] = torch.cat([self.examples[depth], nodes[rows]])
        return nodes

    def state_dict(self) -> dict[str, Tensor]:
        """All tables as they are: plans refer to nodes by number, so the numbering must survive."""
        state = {"sequences": self.sequences}
        # copies: insertion changes the tables in place
        state |= {f"children.{depth}": table.clone() for depth, table in enumerate(self.children)}
        return state | {f"examples.{depth}": rows for depth, rows in enumerate(self.examples)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.sequences = state["sequences"]
        self.children = [state[f"children.{depth}"].clone() for depth in range(self.length)]
        self.examples = [state[f"examples.{depth}"] for depth in range(self.length + 1)]
