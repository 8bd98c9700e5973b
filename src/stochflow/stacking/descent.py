"""One optimiser for the weights of several runs, each with its own gradient clip."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from stochflow.trainer import Descent

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


class StackedDescent:
    """What `Descent` does for one run, for all of them: Adam works element by element, so the runs do not meet.

    Args:
        stacks: weights, [runs, ...], in the order of `descents[i].parameters`.
        descents: the optimisers of the single runs; their moments are where this one begins.
    """

    def __init__(self, stacks: Sequence[nn.Parameter], descents: Sequence[Descent]) -> None:
        self._stacks, self._descents, self._clip = list(stacks), list(descents), descents[0].clip
        self._moments = [[torch.zeros_like(stack) for stack in self._stacks] for _ in _BETAS]
        self._steps = [torch.zeros((), dtype=torch.float32, device=stack.device) for stack in self._stacks]
        for run, descent in enumerate(self._descents):
            for index, single in enumerate(descent.parameters):
                if kept := descent.moments.get(single):
                    self._moments[0][index][run] = kept["exp_avg"]
                    self._moments[1][index][run] = kept["exp_avg_sq"]
                    self._steps[index] = kept["step"].clone()

    def step(self, learning_rate: float) -> None:
        """Move every stack that has a gradient."""
        chosen = [index for index, stack in enumerate(self._stacks) if stack.grad is not None]
        gradients = [gradient for index in chosen if (gradient := self._stacks[index].grad) is not None]
        clip_each_run(gradients, self._clip)
        first, second = ([moments[index] for index in chosen] for moments in self._moments)
        with torch.no_grad():
            adam(
                [self._stacks[index] for index in chosen],
                gradients,
                first,
                second,
                [],
                [self._steps[index] for index in chosen],
                fused=True,
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
        for index, step in enumerate(self._steps):
            if not step:
                continue
            for run, descent in enumerate(self._descents):
                descent.moments[descent.parameters[index]] = {
                    "step": step.clone(),
                    "exp_avg": self._moments[0][index][run],
                    "exp_avg_sq": self._moments[1][index][run],
                }


@torch.no_grad()
def clip_each_run(gradients: Sequence[Tensor], clip: float) -> None:
    """Scale gradients [runs, ...] in place so that each run's norm over all of them is at most `clip`."""
    norms = torch.stack([torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients])
    shares = clip / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)
    if bool((shares < 1.0).any()):
        shares = shares.clamp_max(1.0)
        for gradient in gradients:
            gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
