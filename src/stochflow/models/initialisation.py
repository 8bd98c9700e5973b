"""Starting weights of networks, drawn from a given generator alone."""

import torch
from torch import Tensor, nn

_EMBEDDING_SCALE = 0.1


@torch.no_grad()
def initialise_embeddings(generator: torch.Generator, *weights: Tensor) -> None:
    """Draw normal weights with standard deviation 0.1."""
    for weight in weights:
        weight.normal_(std=_EMBEDDING_SCALE, generator=generator)


@torch.no_grad()
def initialise_linears(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of all linear layers in a module, uniform in ±1/√inputs; their biases are zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            # row by row, however it lies in memory
            drawn = torch.empty_like(layer.weight, memory_format=torch.contiguous_format)
            layer.weight.copy_(drawn.uniform_(-bound, bound, generator=generator))
            layer.bias.zero_()


@torch.no_grad()
def set_to_zero(*layers: nn.Linear) -> None:
    """Weights and biases of heads whose outputs start equal."""
    for layer in layers:
        layer.weight.zero_()
        layer.bias.zero_()
