"""The learned world P̂(b|s,a), and the true one behind the same interface."""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stochflow.core.arrays import Bools, Ints
from stochflow.core.logspace import TINY_PROBABILITY, masked_log_softmax
from stochflow.environments.channels import Channel
from stochflow.environments.memory_channels import MemoryChannel
from stochflow.models.conditioning import per_row
from stochflow.models.initialisation import set_to_zero
from stochflow.models.kmer_body import PrefixBody

DependsOn = Literal["intention", "position", "state"]
Tokens = Ints | npt.NDArray[np.uint8]
Codes = npt.NDArray[np.integer]
_STATE_WIDTH = 64


class DynamicsModel(nn.Module):
    """Logits of the outcome given the intention: one K×K table, plus a table per position, plus a state network.

    Every part starts at zero, so P̂ starts uniform until the first data say how often what was intended came (`start`).
    The intention table is shared by all states and learns first; the others learn what is left. With a `context_width`
    a linear map of the context c is added too: P̂(b|s,a,c). Both methods take c as one vector per row or one for all;
    without it the model's own `context` counts, zero until set.

    `possible` [K, K] is False where it is known that an intention never leads to an outcome; P̂ is 1e-30 there.
    """

    context: Tensor
    possible: Tensor | None

    def __init__(
        self,
        num_tokens: int,
        length: int,
        depends_on: DependsOn,
        context_width: int = 0,
        possible: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("possible", possible, persistent=False)
        self.num_tokens, self.length = num_tokens, length
        self.intention = nn.Parameter(torch.zeros(num_tokens, num_tokens))
        self.position = nn.Parameter(torch.zeros(length, num_tokens, num_tokens)) if depends_on != "intention" else None
        self.state_body: PrefixBody | None = None
        if depends_on == "state":
            self.state_body = PrefixBody(num_tokens, length, (1,), _STATE_WIDTH, num_layers=1)
            self.state_head = nn.Linear(_STATE_WIDTH, num_tokens * num_tokens)
        self.context_head: nn.Linear | None = None
        if context_width:
            self.context_head = nn.Linear(context_width, num_tokens * num_tokens)
            self.register_buffer("context", torch.zeros(context_width))

    def initialise(self, generator: torch.Generator) -> None:
        if self.state_body is not None:
            self.state_body.initialise(generator)
            set_to_zero(self.state_head)
        if self.context_head is not None:
            set_to_zero(self.context_head)

    @property
    def untouched(self) -> bool:
        """True while P̂ is uniform because nothing was learned."""
        return not bool(self.intention.any())

    @torch.no_grad()
    def start(self, share: float) -> None:
        """Let every intention come as it is with this probability, and all other outcomes be equally probable.

        A uniform P̂ says that intentions do not matter, and takes hundreds of small updates to say otherwise; a policy
        that is learned through it in the meantime has far too little entropy.
        """
        if self.num_tokens > 1:
            self.intention.fill_diagonal_(math.log(share / (1.0 - share) * (self.num_tokens - 1)))

    @property
    def sees_state(self) -> bool:
        """False when P̂ is the same for all prefixes of one length."""
        return self.state_body is not None

    @property
    def tabular(self) -> bool:
        """True when tables by intention and position are all there is: no network of states or contexts."""
        return self.state_body is None and self.context_head is None

    def log_matrices(self, tokens: Tensor, context: Tensor | None = None, intentions: Tensor | None = None) -> Tensor:
        """log P̂(b|s_t,a) before each position; [batch, time] → [batch or 1, time, K, K].

        The state at time t is the prefix tokens[:, :t]; a table that no state enters is returned once for all.

        Args:
            intentions: what was meant, [batch, time], for a model that reads it (`HistoryDynamics`); others do not.
        """
        time = tokens.shape[1]
        logits = self.intention.expand(1, time, -1, -1)
        if self.position is not None:
            logits = logits + self.position[:time]
        if self.state_body is not None:
            logits = logits + self._of_states(self.state_body.prefix_states(tokens[:, :-1]))
        logits = logits + self._of_history(tokens, intentions)
        return masked_log_softmax(self._with_context(logits, context), self.possible)

    def log_matrices_at(self, tokens: Tensor, depths: Tensor, context: Tensor | None = None) -> Tensor:
        """log P̂(b|s,a) at one prefix per row; [rows, time], [rows] → [rows, K, K]."""
        logits = self.intention.expand(len(depths), -1, -1)
        if self.position is not None:
            logits = logits + self.position[depths]
        if self.state_body is not None:
            logits = logits + self._of_states(self.state_body.states_at(tokens, depths))
        return masked_log_softmax(self._with_context(logits, context), self.possible)

    def _of_history(self, tokens: Tensor, intentions: Tensor | None) -> Tensor | float:
        """Logits that the pairs so far add; nothing in a model that reads none."""
        return 0.0

    def _of_states(self, states: Tensor) -> Tensor:
        """Logits that the state network adds, from what its body makes of prefixes; [..., width] → [..., K, K]."""
        assert self.state_body is not None
        return self.state_head(self.state_body.features(states)).unflatten(-1, (self.num_tokens, self.num_tokens))

    def _with_context(self, logits: Tensor, context: Tensor | None) -> Tensor:
        """Logits plus what the context adds to every state of its row; [..., K, K] → the same."""
        if self.context_head is None:
            if context is not None:
                raise ValueError("the dynamics model was built without a context; give it a context_width")
            return logits
        added = per_row(self.context_head(self.context if context is None else context), logits.ndim - 1)
        return logits + added.unflatten(-1, (self.num_tokens, self.num_tokens))


class KnownDynamics(nn.Module):
    """The true channel in the place of a learned model; nothing is trained."""

    log_table: Tensor
    sees_state = False

    def __init__(self, channel: Channel, length: int) -> None:
        super().__init__()
        self._channel = channel
        self.register_buffer("log_table", channel.log_matrices(length).float(), persistent=False)

    def log_matrices(self, tokens: Tensor, context: Tensor | None = None, intentions: Tensor | None = None) -> Tensor:
        """Given `intentions`, of a channel with memory what the pairs so far make of it."""
        if intentions is not None and isinstance(self._channel, MemoryChannel):
            return self._channel.log_matrices_along(intentions.cpu(), tokens.cpu()).float().to(tokens.device)
        return self.log_table[: tokens.shape[1]].unsqueeze(0)

    def log_matrices_at(self, tokens: Tensor, depths: Tensor, context: Tensor | None = None) -> Tensor:
        return self.log_table[depths]


Dynamics = DynamicsModel | KnownDynamics


def chosen(log_matrices: Tensor, intentions: Tensor, outcomes: Tensor) -> Tensor:
    """log P̂(outcome|s,intention) of observed steps; [batch or 1, time, K, K] and [batch, time] → [batch, time]."""
    rows = torch.arange(len(log_matrices), device=intentions.device).unsqueeze(-1)
    steps = torch.arange(intentions.shape[1], device=intentions.device)
    return log_matrices[rows, steps, intentions, outcomes]


def dynamics_cross_entropy(log_matrices: Tensor, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> Tensor:
    """Mean of −log P̂(s'|s,a) over the real steps (`forward_dynamics_loss`); a scalar."""
    picked = chosen(log_matrices, intentions, outcomes)
    return -(picked * valid).sum() / valid.sum().clamp_min(1)


def code_kind(num_codes: int) -> type[np.integer]:
    """The smallest whole numbers that so many codes fit into: they are counted as fast as they are read."""
    return np.uint16 if num_codes <= 2**16 else np.uint32 if num_codes <= 2**32 else np.int64


def transition_codes(intentions: Tokens, outcomes: Tokens, num_tokens: int) -> Codes:
    """One number per step, (t·K + a)·K + b; [..., L] each → [..., L]."""
    length = outcomes.shape[-1]
    num_codes = length * num_tokens**2
    codes = np.arange(0, num_codes, num_tokens**2) + intentions * np.int64(num_tokens) + outcomes
    return codes.astype(code_kind(num_codes))


def transition_counts(codes: Codes, valid: Bools | None, num_tokens: int) -> Ints:
    """How often each outcome followed each intention at each position, [draws, num, L] → [draws, L, K, K].

    Args:
        codes: those of `transition_codes`.
        valid: True where a step counts, [draws, num, L]; None where that is everywhere.
    """
    draws, _, length = codes.shape
    num_codes = length * num_tokens**2
    tables = np.arange(0, draws * num_codes, num_codes)[:, None, None].astype(code_kind(draws * num_codes))
    shifted = codes + tables
    real = shifted.reshape(-1) if valid is None else shifted[valid]
    counts = np.bincount(real, minlength=draws * num_codes)
    return counts.reshape(draws, length, num_tokens, num_tokens)


def counted_gradient(
    logits: np.ndarray, explained: np.ndarray, totals: np.ndarray, possible: np.ndarray | None, into: np.ndarray
) -> None:
    """Write the gradient in the logits of `dynamics_cross_entropy` on tables, which is Σ −share·log P̂.

    It is P̂ minus the frequency of what came, by how often it was.

    Args:
        logits: of P̂(b|a), outcomes b first, [K, ..., K].
        explained: share of each possible transition among the observed steps of a model, [K, ..., K].
        totals: their sums over the outcomes, [..., K].
        possible: False where an outcome is known never to come, broadcastable to the logits.
        into: [K, ..., K].
    """
    if possible is not None:
        logits = np.where(possible, logits, -np.inf)
    # reductions of the ufuncs themselves: the tables are so small that every layer of a call counts
    weights = logits - np.maximum.reduce(logits, axis=0)
    np.exp(weights, out=weights)
    np.multiply(weights, totals / np.add.reduce(weights, axis=0), out=into)
    np.subtract(into, explained, out=into)


def table_log_probs(logits: np.ndarray, possible: np.ndarray | None) -> np.ndarray:
    """log P̂(b|a), as `masked_log_softmax`; outcomes b first, [K, ..., K] each."""
    if possible is not None:
        logits = np.where(possible, logits, -np.inf)
    centred = logits - np.maximum.reduce(logits, axis=0)
    log_probs: np.ndarray = centred - np.log(np.add.reduce(np.exp(centred), axis=0))
    return log_probs if possible is None else np.where(possible, log_probs, math.log(TINY_PROBABILITY))
