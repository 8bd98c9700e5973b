"""Torch's own operators and their fallbacks give the same numbers, and it is known which are in use."""

import pytest
import torch

from stochflow.core import torch_kernels as kernels

ROWS, WIDTH = 5, 7


def test_this_release_of_torch_has_all_of_them() -> None:
    assert (
        dict.fromkeys(
            [
                *("gelu_backward", "threshold_backward", "native_layer_norm", "native_layer_norm_backward"),
                *("_log_softmax_backward_data", "_fused_adam_"),
            ],
            True,
        )
        == kernels.IN_USE
    )


@pytest.fixture
def table() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=[True, False], ids=["own", "fallback"])
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every test runs with torch's own operators, and with the public ones alone."""
    for name in kernels.IN_USE:
        monkeypatch.setitem(kernels.IN_USE, name, request.param)
    return bool(request.param)


def by_autograd(function: object, inputs: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    leaf = inputs.clone().requires_grad_()
    function(leaf).backward(grad)  # type: ignore[operator]
    assert leaf.grad is not None
    return leaf.grad


def test_gelu(own: bool, table: torch.Tensor) -> None:
    out, grad = torch.empty_like(table), table.flip(0).clone()
    torch.testing.assert_close(kernels.gelu_into(table, out), torch.nn.functional.gelu(table))
    expected = by_autograd(torch.nn.functional.gelu, table, grad)
    torch.testing.assert_close(kernels.gelu_backward_into(grad, table, torch.empty_like(table)), expected)
    torch.testing.assert_close(kernels.gelu_backward_into(grad, table, grad), expected)  # in place


def test_relu(own: bool, table: torch.Tensor) -> None:
    grad = table.flip(0).clone()
    expected = by_autograd(torch.relu, table, grad)
    torch.testing.assert_close(kernels.relu_backward_into(grad, table.relu(), grad), expected)


def test_layer_norm(own: bool, table: torch.Tensor) -> None:
    scale, shift, grad = table[0].clone(), table[1].clone(), table.flip(0).clone()
    out = (torch.empty_like(table), torch.empty(ROWS, 1, dtype=table.dtype), torch.empty(ROWS, 1, dtype=table.dtype))
    kernels.layer_norm_into(table, scale, shift, out)
    leaves = [each.clone().requires_grad_() for each in (table, scale, shift)]
    normed = torch.nn.functional.layer_norm(leaves[0], (WIDTH,), leaves[1], leaves[2], kernels.NORM_EPSILON)
    torch.testing.assert_close(out[0], normed.detach())
    normed.backward(grad)
    found = kernels.layer_norm_backward(grad, table, (out[1], out[2]), scale, shift)
    for one, leaf in zip(found, leaves, strict=True):
        torch.testing.assert_close(one, leaf.grad)


def test_log_softmax(own: bool, table: torch.Tensor) -> None:
    grad = table.flip(0).clone()
    expected = by_autograd(lambda logits: torch.log_softmax(logits, dim=-1), table, grad)
    torch.testing.assert_close(kernels.log_softmax_backward(grad, torch.log_softmax(table, dim=-1)), expected)


def test_adam(own: bool, table: torch.Tensor) -> None:
    weights, moments, steps = (
        table.flatten().clone(),
        (torch.zeros(35).double(), torch.zeros(35).double()),
        torch.zeros(()),
    )
    leaf = table.flatten().clone().requires_grad_()
    optimizer = torch.optim.Adam([leaf], lr=0.1)
    for number in range(4):
        gradient = (table * (number - 1.5)).flatten()
        leaf.grad = gradient.clone()
        optimizer.step()
        steps += 1
        kernels.adam_step(weights, gradient.clone(), moments, steps, 0.1)
    torch.testing.assert_close(weights, leaf.detach(), atol=1e-7, rtol=1e-6)
