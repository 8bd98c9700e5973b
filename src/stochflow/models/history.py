"""What was intended and what came so far, read by a causal transformer: a policy for worlds with memory."""

import math

import torch
from torch import Tensor, nn

from stochflow.config.context import ReadingConfig
from stochflow.core.arrays import Array
from stochflow.core.logspace import masked_log_softmax
from stochflow.models.base import ChildFlows, Sampler
from stochflow.models.conditioning import Conditioner
from stochflow.models.dynamics.tabular import DependsOn, DynamicsModel
from stochflow.models.engine.prefix_evaluation import Arrange, PrefixEvaluation
from stochflow.models.evaluation import AlongPaths, AutogradEvaluation, Evaluation, H, Heads, PathHeads
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.initialisation import set_to_zero
from stochflow.models.kmers import Kmers
from stochflow.models.transformer_body import TransformerBody


class PairEmbedding(nn.Module):
    """One vector per pair, numbered a·K + b: of the intention, of the outcome, and of whether they agree, summed."""

    def __init__(self, num_tokens: int, width: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.intention, self.outcome = nn.Embedding(num_tokens, width), nn.Embedding(num_tokens, width)
        self.agreement = nn.Embedding(2, width)

    def forward(self, codes: Tensor) -> Tensor:
        """[...] → [..., width]."""
        intended, came = codes // self.num_tokens, codes % self.num_tokens
        return self.intention(intended) + self.outcome(came) + self.agreement((intended == came).long())


class HistoryEncoder(TransformerBody):
    """One vector c_t for the pairs (intended, came) before every step, c_0 for none; keys and values are kept.

    Embedding and position, then self-attention blocks in which no pair sees a later one, then a norm.

    >>> encoder = HistoryEncoder(num_tokens=4, length=8, settings=ReadingConfig(reads="history", width=16))
    >>> intended = came = torch.zeros(2, 5, dtype=torch.int64)
    >>> encoder.contexts(intended, came).shape
    torch.Size([2, 6, 16])
    """

    def __init__(self, num_tokens: int, length: int, settings: ReadingConfig) -> None:
        super().__init__(num_tokens, length, settings.width, settings.layers, settings.heads)
        self.embedding = PairEmbedding(num_tokens, settings.width)

    def contexts(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """c of every history, the empty one first; [batch, time] twice → [batch, time + 1, width]."""
        return self.features(self.prefix_states(self.codes(intentions, outcomes)))

    def codes(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """Pairs by number, any common shape."""
        return intentions * self.num_tokens + outcomes


class HistoryNetwork(FlowNetwork):
    """A flow network whose context is the history of pairs: π(a|s_t,c_t), log F(s_t,c_t) and π_B(a|x,s_{t+1},c_t).

    π_B goes over the intentions from first to last once x is known: Π_t π_B(a_t|x, pairs before t). What came later
    says something of an intention too, for the policy has acted on whether it came true. Without x the product could
    not be the posterior P_π(a_0 … a_{L−1}|x), and KL(P_π(x)‖R/Z) would not be what is minimised.
    """

    reads_history = True

    def __init__(
        self,
        num_tokens: int,
        length: int,
        kmers: tuple[int, ...] | Kmers,
        width: int,
        num_layers: int,
        settings: ReadingConfig,
        body: TransformerBody | None = None,
        plain: bool = False,
    ) -> None:
        scales = settings.join == "scale-shift"
        super().__init__(num_tokens, length, kmers, width, num_layers, body, settings.width, plain, scales)
        self.history = HistoryEncoder(num_tokens, length, settings)
        self.hindsight = Conditioner(width, settings.width + width, scales)

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        self.history.initialise(generator)
        self.hindsight.initialise(generator)

    def _evaluate_paths(self, where: AlongPaths) -> Evaluation[PathHeads]:
        if where.intentions is None:
            raise ValueError("a network that reads history needs the intentions of the paths; give AlongPaths some")
        tokens, intentions = where.outcomes.to(self.device), where.intentions.to(self.device)
        num, length = self.num_tokens, tokens.shape[1]
        contexts = self.history.contexts(intentions, tokens)
        states = self.body.prefix_states(tokens)
        features = self._features(states, contexts)
        parts = [self.policy_head(features), self.flow_head(features)]
        if where.backward == "learned":
            arrived = self.body.features(states[:, 1:])
            made = arrived[:, -1:].expand_as(arrived)
            looking_back = self.hindsight(arrived, torch.cat([contexts[:, :-1], made], dim=-1))
            parts.append(nn.functional.pad(self.backward_head(looking_back), (0, 0, 0, 1)))
        allowed = None if self.mask is None else self.mask.all_prefixes(tokens)[:, :length]
        log_completions = self.steps_left(tokens) * math.log(num)

        def arrange(raw: Tensor) -> PathHeads:
            log_policy = masked_log_softmax(raw[:, :length, :num], allowed)
            log_flow, log_backward = raw[..., num] + log_completions, None
            if where.backward is not None:  # without logits it is uniform
                logits = raw[:, :length, num + 1 :] if where.backward == "learned" else torch.zeros_like(log_policy)
                log_backward = torch.log_softmax(logits, dim=-1)
            ends = log_flow[:, -1] if where.ends else None
            return PathHeads(log_policy, log_flow[:, :length], log_backward, None, ends, allowed)

        return AutogradEvaluation(torch.cat(parts, dim=-1), arrange)

    def _evaluate_some(self, tokens: Tensor, depths: Tensor, context: Tensor | None) -> Evaluation[Heads]:
        raise ValueError("a prefix alone has no history; evaluate this network along paths")

    def _evaluate_all(
        self, tokens: Tensor, context: Tensor | None, sampled: PrefixEvaluation | None, arrange: Arrange[H]
    ) -> Evaluation[H]:
        raise ValueError("a prefix alone has no history; evaluate this network along paths")

    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        raise ValueError("children have histories of their own; choose an objective that reads paths alone")

    @torch.no_grad()
    def root_log_flow(self) -> float:
        nothing = torch.zeros(1, self.length, dtype=torch.int64, device=self.device)
        where = AlongPaths(nothing, nothing.bool(), intentions=nothing)
        return float(self.evaluate(where).heads().log_flow[0, 0])

    def sampler(self, batch_size: int) -> Sampler:
        return HistorySampler(self, batch_size)

    def recording_sampler(self, batch_size: int) -> Sampler:
        return HistorySampler(self, batch_size)


class HistorySampler:
    """Steps the body and the history of every row forward, one pair at a time."""

    @torch.no_grad()
    def __init__(self, network: HistoryNetwork, batch_size: int) -> None:
        self._network = network
        self._sums, self._history = network.body.begin(batch_size), network.history.begin(batch_size)
        nothing = torch.empty(batch_size, 0, dtype=torch.int64, device=network.device)
        self._tokens = self._codes = nothing

    @torch.no_grad()
    def log_probs(self) -> Tensor:
        """log π where the batch stands, [batch, K]."""
        network = self._network
        context = network.history.features(self._history)
        return network.log_policy(self._sums, context, network.allowed(self._tokens))

    def log_policy(self) -> Array:
        found: Array = self.log_probs().cpu().numpy()
        return found

    def allowed(self) -> Tensor | None:
        allowed = self._network.allowed(self._tokens)
        return None if allowed is None else allowed.cpu()

    def advance(self, outcomes: Array) -> None:
        raise ValueError("a policy that reads history goes on by `observe`, from intentions and outcomes")

    def observe(self, intentions: Array, outcomes: Array) -> None:
        network = self._network
        if self._tokens.shape[1] + 1 == network.length:  # nothing is intended any more
            return
        meant, came = (torch.from_numpy(each).to(network.device).unsqueeze(1) for each in (intentions, outcomes))
        self.extend(meant, came)

    @torch.no_grad()
    def extend(self, meant: Tensor, came: Tensor) -> None:
        """Go on by one pair, [batch, 1] each."""
        network = self._network
        self._tokens = torch.cat([self._tokens, came], dim=1)
        self._codes = torch.cat([self._codes, network.history.codes(meant, came)], dim=1)
        self._sums = network.body.extend(self._sums, self._tokens)
        self._history = network.history.extend(self._history, self._codes)


class HistoryDynamics(DynamicsModel):
    """P̂(b|pairs so far, a): the tables, and what an encoder of its own makes of the history."""

    def __init__(
        self,
        num_tokens: int,
        length: int,
        depends_on: DependsOn,
        settings: ReadingConfig,
        possible: Tensor | None = None,
    ) -> None:
        super().__init__(num_tokens, length, depends_on, possible=possible)
        self.history = HistoryEncoder(num_tokens, length, settings)
        self.history_head = nn.Linear(settings.width, num_tokens * num_tokens)

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        self.history.initialise(generator)
        set_to_zero(self.history_head)

    @property
    def sees_state(self) -> bool:
        return True

    @property
    def tabular(self) -> bool:
        return False

    def log_matrices_at(self, tokens: Tensor, depths: Tensor, context: Tensor | None = None) -> Tensor:
        raise ValueError("a prefix alone has no history; ask for the matrices along paths")

    def _of_history(self, tokens: Tensor, intentions: Tensor | None) -> Tensor:
        if intentions is None:
            raise ValueError("dynamics that read history need the intentions of the paths; pass them")
        contexts = self.history.contexts(intentions[:, :-1], tokens[:, :-1])
        return self.history_head(contexts).unflatten(-1, (self.num_tokens, self.num_tokens))
