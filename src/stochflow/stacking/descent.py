"""One optimiser for the weights of several runs, each with its own gradient clip."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stochflow.descent import Descent

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # those of torch.optim.Adam


def stacked_parameters(modules: Sequence[nn.Module]) -> dict[str, nn.Parameter]:
    """Weights of equal modules as leaves [runs, ...]; afterwards the modules' own weights are views into them."""
    stacks = {}
    for name, first in modules[0].named_parameters():
        singles = [module.get_parameter(name) for module in modules]
        stack = nn.Parameter(torch.stack([single.detach() for single in singles]), requires_grad=first.requires_grad)
        for run, single in enumerate(singles):
            single.data = stack.data[run]
        stacks[name] = stack
    return stacks


class RowGradient(NamedTuple):
    """The gradient of a large table of which a batch reads few rows.

    Attributes:
        rows: distinct rows, with the runs flattened into them, [num].
        values: [num, width].
        owners: to which run each row belongs, [num].
    """

    rows: Tensor
    values: Tensor
    owners: Tensor


class StackedDescent:
    """What `Descent` does for one run, for all of them: Adam works element by element, so the runs do not meet.

    Args:
        stacks: weights, [runs, ...], by the names that the modules give them.
        modules: one per run.
        descents: the optimisers of the single runs; their moments are where this one begins.
    """

    def __init__(
        self, stacks: Mapping[str, nn.Parameter], modules: Sequence[nn.Module], descents: Sequence[Descent]
    ) -> None:
        self._stacks, self._descents, self._clip = list(stacks.values()), list(descents), descents[0].clip
        order = [name for name, _ in modules[0].named_parameters()]
        self._numbers = [order.index(name) for name in stacks]  # by which the single optimisers know the weights
        self._moments = [[torch.zeros_like(stack) for stack in self._stacks] for _ in _BETAS]
        states = [descent.state_dict() for descent in self._descents]
        self._num_steps = states[0].get("0.step", torch.zeros(())).clone()
        for run, state in enumerate(states):
            for index, number in enumerate(self._numbers) if state else ():
                self._moments[0][index][run] = state[f"{number}.exp_avg"]
                self._moments[1][index][run] = state[f"{number}.exp_avg_sq"]

    def step(self, learning_rate: float, read: RowGradient | None = None) -> None:
        """Move every stack that has a gradient.

        Args:
            read: the gradient of the first stack, which is zero so far.
        """
        chosen = [index for index, stack in enumerate(self._stacks) if stack.grad is not None]
        gradients = [gradient for index in chosen if (gradient := self._stacks[index].grad) is not None]
        clip_each_run(gradients if read is None else gradients[1:], self._clip, read)
        if read is not None:
            gradients[0].flatten(0, 1).index_copy_(0, read.rows, read.values)
        first, second = ([moments[index] for index in chosen] for moments in self._moments)
        # what torch.optim.Adam calls in the end; a weight without a gradient would not move: its moments are zero
        self._num_steps += 1
        torch._fused_adam_(
            [self._stacks[index].detach() for index in chosen],
            gradients,
            first,
            second,
            [],
            [self._num_steps] * len(chosen),
            lr=learning_rate,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            eps=_EPSILON,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def settle(self) -> None:
        """Give the optimisers of the single runs their moments, so that a checkpoint of each is whole."""
        for run, descent in enumerate(self._descents):
            state = {}
            for index, number in enumerate(self._numbers):
                state[f"{number}.step"] = self._num_steps
                state[f"{number}.exp_avg"] = self._moments[0][index][run]
                state[f"{number}.exp_avg_sq"] = self._moments[1][index][run]
            descent.load_state_dict(state)


@torch.no_grad()
def clip_each_run(gradients: Sequence[Tensor], clip: float, read: RowGradient | None = None) -> None:
    """Scale gradients [runs, ...], and that in a table, in place: each run's norm over all is then at most `clip`."""
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    if read is not None:
        squares = torch.linalg.vector_norm(read.values, dim=1).square_()
        norms.append(torch.zeros_like(norms[0]).index_add_(0, read.owners, squares).sqrt_())
    shares = clip / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)
    if not bool((shares < 1.0).any()):
        return
    shares = shares.clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
    if read is not None:
        read.values.mul_(shares[read.owners].unsqueeze(-1))
