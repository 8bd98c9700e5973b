"""One body, three heads: the policy π, the backward policy π_B and the state flow log F."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import overload

import torch
from torch import Tensor, nn

from stochflow.core.logspace import masked_log_softmax, pick
from stochflow.models.base import ChildFlows, FlowModel, Sampler
from stochflow.models.conditioning import Conditioner
from stochflow.models.engine.buffers import Buffers, Version
from stochflow.models.engine.prefix_evaluation import (
    Arrange,
    EngineHeads,
    PrefixEvaluation,
    StateEvaluation,
    StateFlows,
)
from stochflow.models.engine.prefix_layout import PrefixTree
from stochflow.models.evaluation import AlongPaths, AtPrefixes, AutogradEvaluation, Evaluation, H, Heads, PathHeads
from stochflow.models.initialisation import set_to_zero
from stochflow.models.kmer_body import PrefixBody
from stochflow.models.kmers import Kmers
from stochflow.models.masks import IntentionMask
from stochflow.models.prefix_sampler import NetworkSampler, RecordingSampler
from stochflow.models.transformer_body import TransformerBody

Body = PrefixBody | TransformerBody
_MAX_BUFFERS = 2**20  # numbers per layer of what is kept from batch to batch
_BLOCK = 2**22  # numbers in the features of one block: sixteen megabytes
_MAX_RECORDED = 2**23  # numbers per layer that a sampler keeps for the loss: about a third of a gigabyte for all layers
_NEAR_BLOCK = 2**19  # the same where it is used at once: two megabytes stay in the cache
_MANY_LETTERS = 64  # from which on the heads of π and π_B are left out where log F is asked for
_Prefixes = tuple[Tensor, Tensor]  # tokens and sums of some prefixes of one length


class FlowNetwork(FlowModel):
    """log F starts from the number of completions below a state, (L − t)·log K; both policies start uniform.

    A given `body` of the same width takes the place of the k-mer body, and `kmers` and `num_layers` then say nothing.
    With a `context_width` everything is given a context c as well: π(a|s,c), π_B(a|s',c), log F(s|c). Every method
    takes c as one vector per row, [rows, context_width], or one for all, [context_width]; without it the network's own
    `context` counts, which is zero until it is set.

    With a `mask`, intentions that it does not allow have log π = log 1e-30 in sampling, training and evaluation alike.

    After a token `stop` no decision is left, so there log F starts from one completion.

    With `use_engine`, prefixes that several rows share are evaluated once, by the hand-written engine. Without it
    autograd computes everything, as transforms of `torch.func` need it.
    """

    context: Tensor
    use_engine = True
    mask: IntentionMask | None = None
    stop: int | None = None
    _scratch: Buffers | None = None
    _sampled: PrefixEvaluation | None = None

    def __init__(
        self,
        num_tokens: int,
        length: int,
        kmers: tuple[int, ...] | Kmers,
        width: int,
        num_layers: int,
        body: TransformerBody | None = None,
        context_width: int = 0,
        plain: bool = False,
        context_scales: bool = True,
    ) -> None:
        super().__init__()
        self.num_tokens, self.num_actions, self.length = num_tokens, num_tokens, length
        self._weights_version = Version()
        self.body: Body = PrefixBody(num_tokens, length, kmers, width, num_layers, plain) if body is None else body
        self.policy_head = nn.Linear(width, num_tokens)
        self.backward_head = nn.Linear(width, num_tokens)
        self.flow_head = nn.Linear(width, 1)
        self.conditioner = Conditioner(width, context_width, context_scales) if context_width else None
        if context_width:
            self.register_buffer("context", torch.zeros(context_width))

    def initialise(self, generator: torch.Generator) -> None:
        self.body.initialise(generator)
        set_to_zero(*self._linears)
        if self.conditioner is not None:
            self.conditioner.initialise(generator)

    @property
    def device(self) -> torch.device:
        return self.body.start.device

    @overload
    def evaluate(self, where: AlongPaths) -> Evaluation[PathHeads]: ...

    @overload
    def evaluate(self, where: AtPrefixes) -> Evaluation[Heads]: ...

    def evaluate(self, where: AlongPaths | AtPrefixes) -> Evaluation[PathHeads] | Evaluation[Heads]:
        """What the network says along paths or at prefixes; see `Evaluation`.

        A batch that a `recording_sampler` has just drawn is not evaluated again.
        """
        if isinstance(where, AlongPaths):
            return self._evaluate_paths(where)
        tokens, context = where.tokens.to(self.device), where.context
        if where.depths is None:
            return self._evaluate_all(tokens, context, None, _unchanged)
        return self._evaluate_some(tokens, where.depths.to(self.device), context)

    def _evaluate_paths(self, where: AlongPaths) -> Evaluation[PathHeads]:
        sampled, self._sampled = self._sampled, None
        tokens = where.outcomes.to(self.device)
        ends = where.ends or where.backward == "learned"
        if sampled is not None and not (len(tokens) and sampled.covers(tokens)):
            sampled = None
        if sampled is not None and ends:
            with torch.no_grad():
                sampled.finish()

        def arrange(heads: Heads, allowed: Tensor | None) -> PathHeads:
            return _path_heads(heads, tokens.shape[1], where, allowed)

        return self._evaluate_all(tokens if ends else tokens[:, :-1], None, sampled, arrange)

    def _evaluate_all(
        self, tokens: Tensor, context: Tensor | None, sampled: PrefixEvaluation | None, arrange: Arrange[H]
    ) -> Evaluation[H]:
        """At every prefix of rows, [batch, time], the empty one first.

        Args:
            sampled: what a sampler has evaluated of just these prefixes.
        """
        allowed = None if self.mask is None else self.mask.all_prefixes(tokens)
        log_completions = self.steps_left(tokens) * math.log(self.num_tokens)
        if self.engine_applies and context is None and len(tokens):
            return EngineHeads(sampled or self.evaluated(tokens), allowed, log_completions, arrange)
        states, apart = self.body.prefix_states(tokens), arrange is _unchanged
        return self._by_autograd(self._features(states, context), allowed, log_completions, arrange, apart)

    def _evaluate_some(self, tokens: Tensor, depths: Tensor, context: Tensor | None) -> Evaluation[Heads]:
        """At one prefix per row, the first `depths` tokens of it."""
        allowed = None if self.mask is None else self.mask.at(tokens, depths)
        left = self.length - depths if self.stop is None else pick(self.steps_left(tokens), depths)
        log_completions = left * math.log(self.num_tokens)
        if self.engine_applies and context is None and len(tokens) and tokens.device.type == "cpu":
            return EngineHeads(self.evaluated_at(tokens, depths), allowed, log_completions, _unchanged)
        states = self.body.states_at(tokens, depths)
        apart = context is not None
        return self._by_autograd(self._features(states, context), allowed, log_completions, _unchanged, apart)

    def _by_autograd(
        self, features: Tensor, allowed: Tensor | None, log_completions: Tensor, arrange: Arrange[H], apart: bool
    ) -> Evaluation[H]:
        """The same by autograd, from the features of the prefixes, [..., width].

        Args:
            apart: True to differentiate each head by itself; side by side, sums over rows are rounded differently.
        """
        num, parts = self.num_tokens, [head(features) for head in self._linears]

        def heads(outputs: Tensor) -> H:
            columns = (outputs[..., :num], outputs[..., num : 2 * num], outputs[..., -1:])
            policy, backward, flow = parts if apart else columns
            log_policy, log_backward = masked_log_softmax(policy, allowed), torch.log_softmax(backward, dim=-1)
            return arrange(Heads(log_policy, log_backward, flow.squeeze(-1) + log_completions), allowed)

        return AutogradEvaluation(torch.cat(parts, dim=-1), heads)

    @torch.no_grad()
    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        tokens = outcomes.to(self.device)
        entries = self.length * self.num_tokens * self.policy_head.in_features
        blocks = tokens.split(max(1, _BLOCK // entries))
        flows = [self._log_flow(self.body.child_states(block), self._children_left(block)) for block in blocks]
        return ChildFlows(torch.cat(flows))

    @torch.no_grad()
    def root_log_flow(self) -> float:
        empty = torch.empty(1, 0, dtype=torch.int64, device=self.device)
        return float(self.evaluate(AtPrefixes(empty)).heads().log_flow)

    def sampler(self, batch_size: int) -> Sampler:
        return NetworkSampler(self, batch_size)

    def recording_sampler(self, batch_size: int) -> Sampler:
        """A sampler that keeps what a loss on the same episodes needs, where that can be kept and fits into memory."""
        self._sampled = None  # so that its buffers can be used again
        if not self.engine_applies or batch_size * self.length * self.body.width > _MAX_RECORDED:
            return NetworkSampler(self, batch_size)
        sampler = RecordingSampler(self, batch_size)
        self._sampled = sampler.evaluation
        return sampler

    @property
    def engine_applies(self) -> bool:
        """True where the hand-written engine evaluates body and heads."""
        return self.use_engine and self.conditioner is None and isinstance(self.body, PrefixBody)

    def begin_evaluation(self, tree: PrefixTree, num_complete: int = 0) -> PrefixEvaluation:
        """What evaluates this network on a tree, level by level, where the engine applies."""
        assert isinstance(self.body, PrefixBody)
        complete = sum(self.num_tokens**depth for depth in range(1 + num_complete))
        most = max(tree.sizes[0], complete) + (self.length - num_complete) * tree.batch_size
        return PrefixEvaluation(self._space(self.body, most), tree, num_complete)

    def _space(self, body: PrefixBody, num_nodes: int) -> Buffers:
        """Buffers for so many nodes: those of the last evaluation, if they are large enough and free."""
        space = self._scratch
        if space is None or space.body is not body or space.capacity < num_nodes or not space.free:
            heads = [weight for head in self._linears for weight in (head.weight, head.bias)]
            space = Buffers(body, heads, num_nodes, self._weights_version)
            if num_nodes * body.width <= _MAX_BUFFERS:
                self._scratch = space
        return space

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "FlowNetwork":
        self._scratch = self._sampled = None  # the weights go elsewhere or change their precision
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch

    @torch.no_grad()
    def evaluated(self, tokens: Tensor) -> PrefixEvaluation:
        """Every prefix of finished rows, [batch, time], the empty one first, each evaluated once."""
        evaluation = self.begin_evaluation(PrefixTree.of(tokens, self.num_tokens))
        evaluation.finish()
        return evaluation

    @torch.no_grad()
    def evaluated_at(
        self, tokens: Tensor, depths: Tensor, kind: type[StateEvaluation] = StateEvaluation
    ) -> StateEvaluation:
        """One prefix of some rows, at least one, on the CPU, where the engine applies."""
        assert isinstance(self.body, PrefixBody)
        bags = self.body.bags(tokens.numpy(), depths.numpy())
        return kind(self._space(self.body, len(tokens)), bags)

    @torch.no_grad()
    def log_flow_of(self, tokens: Tensor) -> Tensor:
        """log F of whole rows, without gradient and in blocks; [rows, time] → [rows]."""
        by_engine = self.engine_applies and len(tokens) and tokens.device.type == "cpu"
        blocks = tokens.split(max(1, (_NEAR_BLOCK if by_engine else _BLOCK) // self.policy_head.in_features))
        if not by_engine:
            return torch.cat([self._log_flow(self.body.states_of(block), self._left_at_end(block)) for block in blocks])
        flows, kind = [], StateFlows if self.num_tokens >= _MANY_LETTERS else StateEvaluation
        for block in blocks:  # in memory that is used again
            outputs = self.evaluated_at(block, torch.full((len(block),), block.shape[1]), kind).row_outputs()
            flows.append(outputs[:, -1] + self._left_at_end(block) * math.log(self.num_tokens))
        return torch.cat(flows)

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
        return self.evaluate(AtPrefixes(empty, context=context)).heads().log_flow.squeeze(-1)

    @torch.no_grad()
    def tree_log_policies(self, context: Tensor | None = None) -> Iterator[Tensor]:
        """log π(·|s) of the full prefix tree, level by level in lexicographic order; yields [K^t, K]."""
        nothing = torch.zeros(1, 0, dtype=torch.int64, device=self.body.start.device)
        blocks: Iterable[_Prefixes] = [(nothing, self.body.begin(1))]
        for depth in range(self.length):
            if depth:
                grown = self._children(blocks)
                # nothing grows out of the last level, so its sums need not be kept
                blocks = grown if depth + 1 == self.length else list(grown)
            yield torch.cat([self.log_policy(sums, context, self.allowed(tokens)) for tokens, sums in blocks])

    def _children(self, blocks: Iterable[_Prefixes]) -> Iterator[_Prefixes]:
        """Every prefix with every letter after it, in blocks small enough to stay in the cache."""
        for tokens, sums in blocks:
            num_parents = max(1, _NEAR_BLOCK // (sums.shape[-1] * self.num_tokens))
            for some, their_sums in zip(tokens.split(num_parents), sums.split(num_parents), strict=True):
                letters = torch.arange(self.num_tokens, device=tokens.device).repeat(len(some)).unsqueeze(-1)
                grown = torch.cat([some.repeat_interleave(self.num_tokens, dim=0), letters], dim=1)
                yield grown, self.body.extend(their_sums.repeat_interleave(self.num_tokens, dim=0), grown)

    @property
    def _linears(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        return self.policy_head, self.backward_head, self.flow_head

    def _features(self, sums: Tensor, context: Tensor | None) -> Tensor:
        if self.use_engine and sums.ndim == 2 and isinstance(self.body, PrefixBody):
            features = self.body.engine_features(sums)
        else:
            features = self.body.features(sums)
        if self.conditioner is not None:
            return self.conditioner(features, self.context if context is None else context)
        if context is not None:
            raise ValueError("the network was built without a context; give it a context_width")
        return features

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


def _unchanged(heads: Heads, allowed: Tensor | None) -> Heads:
    return heads


def _path_heads(heads: Heads, length: int, where: AlongPaths, allowed: Tensor | None) -> PathHeads:
    """Heads at every prefix as heads along paths of so many steps; those of complete sequences may be missing.

    Args:
        allowed: what the mask says of the intentions at the same prefixes, [..., K].
    """
    log_policy = heads.log_policy[:, :length]
    log_backward = heads.log_backward[:, 1:] if where.backward == "learned" else None
    if where.backward == "uniform":
        log_backward = torch.log_softmax(torch.zeros_like(log_policy), dim=-1)
    log_end_flow = heads.log_flow[:, -1] if where.ends else None
    possible = None if allowed is None else allowed[:, :length]
    return PathHeads(log_policy, heads.log_flow[:, :length], log_backward, None, log_end_flow, possible)
