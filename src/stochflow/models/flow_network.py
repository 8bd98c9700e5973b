"""One body, three heads: the policy π, the backward policy π_B and the state flow log F."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stochflow.logmath import masked_log_softmax
from stochflow.models.body import PrefixBody
from stochflow.models.conditioning import Conditioner
from stochflow.models.masks import IntentionMask
from stochflow.models.transformer import TransformerBody

Body = PrefixBody | TransformerBody
_BLOCK = 2**22  # numbers in the features of one block: sixteen megabytes


class Heads(NamedTuple):
    """Outputs for a batch of prefixes with any leading shape.

    Attributes:
        log_policy: log π(a|s), [..., K] (`pol_logits`).
        log_backward: log π_B(a|s'), which intention led into this state, [..., K] (`pol_back_logits`).
        log_flow: log F(s), [...] (`log_flows`).
    """

    log_policy: Tensor
    log_backward: Tensor
    log_flow: Tensor


class FlowNetwork(nn.Module):
    """log F starts from the number of completions below a state, (L − t)·log K; both policies start uniform.

    A given `body` of the same width takes the place of the k-mer body, and `kmers` and `num_layers` then say nothing.
    With a `context_width` everything is given a context c as well: π(a|s,c), π_B(a|s',c), log F(s|c). Every method
    takes c as one vector per row, [rows, context_width], or one for all, [context_width]; without it the network's own
    `context` counts, which is zero until it is set.

    With a `mask`, intentions that it does not allow have log π = log 1e-30 wherever π is asked for: what samples, what
    learns and what judges see the same policy.

    After a token `stop` nothing is decided any more, so there log F starts from one completion.
    """

    context: Tensor
    mask: IntentionMask | None = None
    stop: int | None = None

    def __init__(
        self,
        num_tokens: int,
        length: int,
        kmers: tuple[int, ...],
        width: int,
        num_layers: int,
        body: TransformerBody | None = None,
        context_width: int = 0,
    ) -> None:
        super().__init__()
        self.num_tokens, self.length = num_tokens, length
        self.body: Body = PrefixBody(num_tokens, length, kmers, width, num_layers) if body is None else body
        self.policy_head = nn.Linear(width, num_tokens)
        self.backward_head = nn.Linear(width, num_tokens)
        self.flow_head = nn.Linear(width, 1)
        self.conditioner = Conditioner(width, context_width) if context_width else None
        if context_width:
            self.register_buffer("context", torch.zeros(context_width))

    def initialise(self, generator: torch.Generator) -> None:
        self.body.initialise(generator)
        for head in (self.policy_head, self.backward_head, self.flow_head):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        if self.conditioner is not None:
            self.conditioner.initialise(generator)

    def all_prefixes(self, tokens: Tensor, context: Tensor | None = None) -> Heads:
        """Heads at every prefix, the empty one first; [batch, time] → [batch, time + 1, ...]."""
        allowed = None if self.mask is None else self.mask.all_prefixes(tokens)
        return self._heads(self.body.prefix_sums(tokens), self.steps_left(tokens), context, allowed)

    def at(self, tokens: Tensor, depths: Tensor, context: Tensor | None = None) -> Heads:
        """Heads at one prefix per row, the first `depths` tokens of it; [rows, time], [rows] → [rows, ...]."""
        allowed = None if self.mask is None else self.mask.at(tokens, depths)
        left = self.length - depths
        if self.stop is not None:
            left = self.steps_left(tokens).gather(1, depths.unsqueeze(-1)).squeeze(-1)
        return self._heads(self.body.sums_at(tokens, depths), left, context, allowed)

    @torch.no_grad()
    def log_flow_of(self, tokens: Tensor) -> Tensor:
        """log F of whole rows, without gradient and in blocks; [rows, time] → [rows]."""
        blocks = tokens.split(max(1, _BLOCK // self.policy_head.in_features))
        return torch.cat([self._log_flow(self.body.sums_of(block), self._left_at_end(block)) for block in blocks])

    @torch.no_grad()
    def child_log_flows(self, tokens: Tensor) -> Tensor:
        """log F of every proper prefix with every letter after it, in blocks; [batch, L] → [batch, L, K]."""
        entries = self.length * self.num_tokens * self.policy_head.in_features
        blocks = tokens.split(max(1, _BLOCK // entries))
        return torch.cat([self._log_flow(self.body.child_sums(block), self._children_left(block)) for block in blocks])

    def log_policy(self, sums: Tensor, context: Tensor | None = None, allowed: Tensor | None = None) -> Tensor:
        """log π from the body's summed embeddings alone; [..., width] → [..., K].

        Args:
            allowed: what the mask says of the same prefixes, [..., K].
        """
        return masked_log_softmax(self.policy_head(self._features(sums, context)), allowed)

    def allowed(self, tokens: Tensor) -> Tensor | None:
        """True for the intentions that the mask allows at whole prefixes; [batch, time] → [batch, K]."""
        return None if self.mask is None else self.mask.next(tokens)

    def log_completions(self, tokens: Tensor) -> Tensor:
        """log of the number of sequences that begin with whole rows, float64; [rows, time] → [rows]."""
        left = torch.as_tensor(self._left_at_end(tokens), dtype=torch.float64, device=tokens.device)
        return (left * math.log(self.num_tokens)).expand(len(tokens))

    def ended(self, tokens: Tensor) -> Tensor:
        """True for rows with a stop in them; [rows, time] → [rows]."""
        if self.stop is None:
            return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        return (tokens == self.stop).any(dim=1)

    def log_z(self, context: Tensor) -> Tensor:
        """log Z(c) as the network has it: log F of the empty prefix; [rows, context_width] → [rows]."""
        empty = torch.empty(len(context), 0, dtype=torch.int64, device=context.device)
        return self.all_prefixes(empty, context).log_flow.squeeze(-1)

    @torch.no_grad()
    def tree_log_policies(self, context: Tensor | None = None) -> Iterator[Tensor]:
        """log π(·|s) of the full prefix tree, level by level in lexicographic order; yields [K^t, K]."""
        device = self.body.start.device
        tokens = torch.zeros(1, 0, dtype=torch.int64, device=device)
        sums = self.body.begin(1)
        letters = torch.arange(self.num_tokens, device=device)
        for depth in range(self.length):
            yield self.log_policy(sums, context, self.allowed(tokens))
            if depth + 1 < self.length:
                parents = tokens.repeat_interleave(self.num_tokens, dim=0)
                tokens = torch.cat([parents, letters.repeat(len(tokens)).unsqueeze(-1)], dim=1)
                sums = self.body.extend(sums.repeat_interleave(self.num_tokens, dim=0), tokens)

    def _features(self, sums: Tensor, context: Tensor | None) -> Tensor:
        features = self.body.features(sums)
        if self.conditioner is not None:
            return self.conditioner(features, self.context if context is None else context)
        if context is not None:
            raise ValueError("the network was built without a context; give it a context_width")
        return features

    def _heads(self, sums: Tensor, left: Tensor, context: Tensor | None, allowed: Tensor | None) -> Heads:
        features = self._features(sums, context)
        return Heads(
            log_policy=masked_log_softmax(self.policy_head(features), allowed),
            log_backward=torch.log_softmax(self.backward_head(features), dim=-1),
            log_flow=self.flow_head(features).squeeze(-1) + left * math.log(self.num_tokens),
        )

    def _log_flow(self, sums: Tensor, left: Tensor | int) -> Tensor:
        return self.flow_head(self._features(sums, None)).squeeze(-1) + left * math.log(self.num_tokens)

    def steps_left(self, tokens: Tensor) -> Tensor:
        """Decisions to come at every prefix, the empty one first; [batch, time] → [time + 1] or [batch, time + 1]."""
        left = self.length - torch.arange(tokens.shape[1] + 1, device=tokens.device)
        if self.stop is None:
            return left
        stopped = torch.nn.functional.pad((tokens == self.stop).cumsum(dim=1) > 0, (1, 0))
        return left * ~stopped

    def _left_at_end(self, tokens: Tensor) -> Tensor | int:
        """Decisions to come after whole rows; one number for all, or [rows]."""
        left = self.length - tokens.shape[1]
        return left if self.stop is None else left * ~self.ended(tokens)

    def _children_left(self, tokens: Tensor) -> Tensor:
        """Decisions to come after every proper prefix and one more token; [batch, L] → [L, 1] or [batch, L, K]."""
        left = self.length - torch.arange(1, self.length + 1, device=tokens.device).unsqueeze(-1)
        if self.stop is None:
            return left
        going_on = (self.steps_left(tokens[:, :-1]) > 0).unsqueeze(-1)
        return left * (going_on & (torch.arange(self.num_tokens, device=tokens.device) != self.stop))
