"""Samplers of a policy over prefixes: one level of the prefix tree per step, shared prefixes evaluated once."""

from typing import Protocol

import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.logspace import masked_log_softmax
from stochflow.models.engine.prefix_evaluation import PrefixEvaluation
from stochflow.models.engine.prefix_layout import PrefixTree, num_complete_levels
from stochflow.models.kmer_body import PrefixBody
from stochflow.models.masks import IntentionMask
from stochflow.models.transformer_body import TransformerBody


class PrefixNetwork(Protocol):
    """What a sampler reads of a flow network."""

    num_tokens: int
    length: int
    mask: IntentionMask | None
    use_engine: bool
    body: PrefixBody | TransformerBody

    def log_policy(self, sums: Tensor, context: Tensor | None = None, allowed: Tensor | None = None) -> Tensor: ...

    def allowed(self, tokens: Tensor) -> Tensor | None: ...

    def begin_evaluation(self, tree: PrefixTree, num_complete: int = 0) -> PrefixEvaluation: ...


class NetworkSampler:
    """The policy network, its first layer computed incrementally and prefixes that rows share evaluated once."""

    @torch.no_grad()
    def __init__(self, network: PrefixNetwork, batch_size: int, context: Tensor | None = None) -> None:
        self._network, self._context = network, context
        apart = not network.use_engine or (context is not None and context.ndim > 1)
        self._tree = PrefixTree(network.num_tokens, batch_size, network.body.start.device, apart=apart)
        self._sums = network.body.begin(self._tree.sizes[0])

    def log_policy(self) -> Array:
        tree = self._tree
        allowed = self._network.allowed(tree.node_tokens(tree.depth))
        return tree.at_rows(self._network.log_policy(self._sums, self._context, allowed)).detach().cpu().numpy()

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self._tree)

    def advance(self, outcomes: Array) -> None:
        tree = self._tree
        tree.advance(outcomes)
        if tree.depth < self._network.length:
            inherited = tree.inherited(self._sums, tree.depth)
            self._sums = self._network.body.extend(inherited, tree.node_tokens(tree.depth))


class RecordingSampler:
    """The same, keeping what was computed for a loss at the same weights; the first levels are evaluated at once."""

    @torch.no_grad()
    def __init__(self, network: PrefixNetwork, batch_size: int) -> None:
        self._network = network
        num_complete = 0
        if network.mask is None:
            num_complete = num_complete_levels(network.num_tokens, network.length, batch_size)
        tree = PrefixTree(network.num_tokens, batch_size, network.body.start.device, num_complete)
        self.evaluation = network.begin_evaluation(tree, num_complete)

    def log_policy(self) -> Array:
        evaluation = self.evaluation
        if evaluation.num_levels == evaluation.tree.depth:
            evaluation.evaluate()
        logits = evaluation.logits()
        if self._network.mask is None:
            return logits
        return masked_log_softmax(torch.from_numpy(logits), self.allowed()).numpy()

    def allowed(self) -> Tensor | None:
        return _allowed(self._network, self.evaluation.tree)

    def advance(self, outcomes: Array) -> None:
        evaluation, tree = self.evaluation, self.evaluation.tree
        tree.advance(outcomes)
        if evaluation.needs_growth and tree.depth < self._network.length:
            evaluation.grow()


def _allowed(network: PrefixNetwork, tree: PrefixTree) -> Tensor | None:
    allowed = None if network.mask is None else network.mask.next(tree.tokens)
    return None if allowed is None else allowed.cpu()
