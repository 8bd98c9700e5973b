"""The flow model of a graph: features of a node → π, the backward policy over parents and intentions, log F."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stochflow.core.arrays import Array
from stochflow.core.logspace import TINY_PROBABILITY, masked_log_softmax
from stochflow.environments.graphs.environment import nodes_on, states_on
from stochflow.environments.graphs.graph import Graph
from stochflow.models.base import ChildFlows, FlowModel, Sampler
from stochflow.models.evaluation import AlongPaths, AutogradEvaluation, Evaluation, PathHeads
from stochflow.models.initialisation import initialise_embeddings, initialise_linears, set_to_zero

_ROWS_PER_STEP = 64  # so many rows of a table take about as long as one more pass through the network
_FEW = 64  # episodes below which looking for states that they share costs more than it saves


class GraphNetwork(FlowModel):
    """A residual MLP on node features; both policies start uniform, log F from the number of objects below a node.

    >>> from stochflow.environments.graphs.hypergrid import hypergrid
    >>> network = GraphNetwork(hypergrid("2,4", slip=0.0), width=8, num_layers=1)
    >>> network.initialise(torch.Generator().manual_seed(0))
    >>> round(network.root_log_flow(), 3)  # log of the 16 cells
    2.773
    """

    features: Tensor
    valid_actions: Tensor
    valid_pairs: Tensor
    log_completions: Tensor

    def __init__(self, graph: Graph, width: int, num_layers: int) -> None:
        super().__init__()
        self.graph = graph
        self.num_states, self.num_actions = graph.num_states, graph.num_actions
        steps = graph.parents.clamp_min(0)
        # [S + X, parents · A]: only what may have led here has a share, or balance could hide flow where none is
        may = graph.support[steps // graph.num_outcomes, :, steps % graph.num_outcomes]
        pairs = (may & (graph.parents >= 0).unsqueeze(-1)).flatten(1)
        pairs[0, 0] = True  # the root has no parents; its row is never read but must stay finite
        self.register_buffer("features", graph.features, persistent=False)
        self.register_buffer("valid_actions", graph.valid_actions, persistent=False)
        self.register_buffer("valid_pairs", pairs, persistent=False)
        self.register_buffer("log_completions", graph.log_completions.float(), persistent=False)
        self.embedding = nn.Linear(graph.features.shape[1], width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.policy_head = nn.Linear(width, graph.num_actions)
        self.backward_head = nn.Linear(width, pairs.shape[1])
        self.flow_head = nn.Linear(width, 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        initialise_embeddings(generator, self.embedding.weight, self.embedding.bias)
        initialise_linears(self.layers, generator)
        set_to_zero(self.policy_head, self.backward_head, self.flow_head)

    @property
    def device(self) -> torch.device:
        return self.features.device

    def hidden(self, nodes: Tensor) -> Tensor:
        """The trunk; [...] → [..., width]."""
        # functions instead of modules: a rollout needs a few rows many times, and a call of a module costs as much
        embedded = functional.linear(self.features[nodes], self.embedding.weight, self.embedding.bias)
        norm = self.norm
        hidden = functional.gelu(torch.layer_norm(embedded, norm.normalized_shape, norm.weight, norm.bias, norm.eps))
        for layer in self.layers:
            # the stubs take what a list of modules holds for anything
            hidden = hidden + functional.gelu(functional.linear(hidden, layer.weight, layer.bias))  # type: ignore[arg-type]
        return hidden

    def log_policy(self, hidden: Tensor, states: Tensor) -> Tensor:
        """log π(a|s), log 1e-30 where not possible; [..., width], [...] → [..., A]."""
        return masked_log_softmax(self.policy_head(hidden), self.valid_actions[states])

    def log_backward(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        """log π_B(s,a|s') over parents and intentions; [..., width], [...] → [..., parents, A]."""
        return self._log_pairs(self.backward_head(hidden), nodes)

    def _log_pairs(self, logits: Tensor, nodes: Tensor, uniform: bool = False) -> Tensor:
        """Logits of the backward head, or equal ones, normalised over what may have led to a node."""
        log_pairs = masked_log_softmax(torch.zeros_like(logits) if uniform else logits, self.valid_pairs[nodes])
        return log_pairs.unflatten(-1, (-1, self.num_actions))

    def log_flow(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        """log F; [..., width], [...] → [...]."""
        return self.flow_head(hidden).squeeze(-1) + self.log_completions[nodes]

    def outputs(self, nodes: Tensor) -> Tensor:
        """Logits of π, logits of π_B and log F less its starting value side by side; [num] → [num, n]."""
        hidden = self.hidden(nodes)
        return torch.cat([head(hidden) for head in (self.policy_head, self.backward_head, self.flow_head)], dim=-1)

    def evaluate(self, where: AlongPaths) -> Evaluation[PathHeads]:
        """Along paths, by autograd; after the end of an episode the state is its object."""
        outcomes, valid, backward, ends, _ = where
        graph, device = self.graph, self.device
        nodes = nodes_on(graph, outcomes.cpu(), valid.cpu())
        states = torch.where(valid.cpu(), nodes[:, :-1], 0)
        places = graph.parent_places[states, outcomes.cpu()]
        # a batch passes through few different nodes: each goes through the network once
        distinct, which = nodes.unique(return_inverse=True)
        distinct, before, after = distinct.to(device), which[:, :-1].to(device), which[:, 1:].to(device)
        places = places.to(device)
        # objects intend nothing; their rows are those of the root and count nowhere
        rows = torch.where(distinct < graph.num_states, distinct, 0)
        allowed = self.valid_actions[rows]

        def arrange(outputs: Tensor) -> PathHeads:
            num = self.num_actions
            log_policy = masked_log_softmax(outputs[:, :num], allowed)
            log_flow = outputs[:, -1] + self.log_completions[distinct]
            into = None
            if backward is not None:
                into = self._log_pairs(outputs[:, num:-1], distinct, backward == "uniform")[after, places]
            return PathHeads(
                log_policy=log_policy[before],
                log_flow=log_flow[before],
                log_backward=into,
                log_parent=None if into is None else into.logsumexp(dim=-1),
                log_end_flow=log_flow[after[:, -1]] if ends else None,
                allowed=allowed[before],
                choices=allowed.sum(dim=-1)[before],
            )

        return AutogradEvaluation(self.outputs(distinct), arrange)

    @torch.no_grad()
    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        graph, device = self.graph, self.device
        states = states_on(graph, outcomes.cpu(), valid.cpu())
        children, possible = graph.children[states], graph.possible[states].to(device)
        distinct, which = children.clamp_min(0).unique(return_inverse=True)
        distinct, which = distinct.to(device), which.to(device)
        hidden = self.hidden(distinct)
        log_flow = self.log_flow(hidden, distinct)[which]
        places = graph.parent_places[states].to(device)
        log_parent = self.log_backward(hidden, distinct)[which, places].logsumexp(dim=-1)
        nothing = torch.tensor(TINY_PROBABILITY, device=device).log()
        return ChildFlows(torch.where(possible, log_flow, nothing), torch.where(possible, log_parent, 0.0))

    @torch.no_grad()
    def log_flows(self, nodes: Tensor) -> Tensor:
        """log F of nodes, float64, on the CPU; [num] → [num]."""
        nodes = nodes.to(self.device)
        return self.log_flow(self.hidden(nodes), nodes).double().cpu()

    def root_log_flow(self) -> float:
        return float(self.log_flows(torch.zeros(1, dtype=torch.int64)))

    def policy_table(self) -> Tensor:
        """log π(a|s) of every state, on the CPU, float64, [S, A]."""
        return self.policy_rows(torch.arange(self.num_states))

    @torch.no_grad()
    def policy_rows(self, states: Tensor) -> Tensor:
        """log π(a|s) of some states, on the CPU, float64; [num] → [num, A]."""
        states = states.to(self.device)
        return self.log_policy(self.hidden(states), states).double().cpu()

    def sampler(self, batch_size: int) -> Sampler:
        """A large graph is evaluated at the states that episodes come to, a small one everywhere at once."""
        few_steps = self.graph.num_states > _ROWS_PER_STEP * self.graph.max_steps
        return GraphSampler(self.graph, batch_size, self if few_steps else self.policy_table())


class GraphSampler:
    """log π where episodes on a graph stand: rows of a table, or of the network evaluated there.

    Args:
        log_policy: log π(a|s) of every state, [S, A], or the network that gives the rows of some.
    """

    def __init__(self, graph: Graph, batch_size: int, log_policy: Tensor | GraphNetwork) -> None:
        self._graph, self._log_policy = graph, log_policy
        self._nodes = torch.zeros(batch_size, dtype=torch.int64)

    def log_policy(self) -> Array:
        states, source = self._states, self._log_policy
        if isinstance(source, Tensor):
            return source[states].numpy()
        if len(states) < _FEW:
            return source.policy_rows(states).numpy()
        distinct, which = states.unique(return_inverse=True)
        return source.policy_rows(distinct)[which].numpy()

    def allowed(self) -> Tensor:
        return self._graph.valid_actions[self._states]

    def advance(self, outcomes: Array) -> None:
        going = self._nodes < self._graph.num_states
        children = self._graph.children[self._states, torch.from_numpy(outcomes)]
        self._nodes = torch.where(going, children, self._nodes)

    @property
    def _states(self) -> Tensor:
        """Where each episode stands; the root where it has ended, [batch]."""
        return torch.where(self._nodes < self._graph.num_states, self._nodes, 0)
