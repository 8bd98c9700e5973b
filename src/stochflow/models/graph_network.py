"""Features of a node → the policy π, the backward policy π_B over parents and intentions, the flow log F."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stochflow.core.logspace import masked_log_softmax
from stochflow.environments.graphs.graph import Graph

_EMBEDDING_SCALE = 0.1


class GraphNetwork(nn.Module):
    """A residual MLP on node features; both policies start uniform, log F from the number of objects below a node."""

    features: Tensor
    valid_actions: Tensor
    valid_pairs: Tensor
    log_completions: Tensor

    def __init__(self, graph: Graph, width: int, num_layers: int) -> None:
        super().__init__()
        self.num_states, self.num_actions = graph.num_states, graph.num_actions
        steps = graph.parents.clamp_min(0)
        # [S + X, parents · A]: only what may have led here has a share, or balance could hide flow where none is
        may = graph.support[steps // graph.num_outcomes, :, steps % graph.num_outcomes]
        pairs = (may & (graph.parents >= 0).unsqueeze(-1)).flatten(1)
        pairs[0, 0] = True  # the root has no parents; its row is never asked for but must stay finite
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
        with torch.no_grad():
            self.embedding.weight.normal_(std=_EMBEDDING_SCALE, generator=generator)
            self.embedding.bias.normal_(std=_EMBEDDING_SCALE, generator=generator)
            for name, weight in self.layers.named_parameters():
                if name.endswith("weight"):
                    bound = weight.shape[1] ** -0.5
                    weight.uniform_(-bound, bound, generator=generator)
                else:
                    weight.zero_()
            for head in (self.policy_head, self.backward_head, self.flow_head):
                head.weight.zero_()
                head.bias.zero_()

    @property
    def device(self) -> torch.device:
        return self.features.device

    def hidden(self, nodes: Tensor) -> Tensor:
        """The trunk; [...] → [..., width]."""
        # functions instead of modules: a walk asks for a few rows many times, and a call of a module costs as much
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
        log_pairs = masked_log_softmax(self.backward_head(hidden), self.valid_pairs[nodes])
        return log_pairs.unflatten(-1, (-1, self.num_actions))

    def log_flow(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        """log F; [..., width], [...] → [...]."""
        return self.flow_head(hidden).squeeze(-1) + self.log_completions[nodes]

    @torch.no_grad()
    def policy_table(self) -> Tensor:
        """log π(a|s) of every state, on the CPU, float64, [S, A]."""
        return self.policy_rows(torch.arange(self.num_states))

    @torch.no_grad()
    def policy_rows(self, states: Tensor) -> Tensor:
        """log π(a|s) of some states, on the CPU, float64; [num] → [num, A]."""
        states = states.to(self.device)
        return self.log_policy(self.hidden(states), states).double().cpu()
