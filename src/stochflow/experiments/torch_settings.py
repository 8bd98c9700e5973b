"""How torch computes while a run lasts: device, threads, deterministic operations."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from threadpoolctl import threadpool_limits

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The named device, or the best one there is for "auto"."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        raise ConfigError(f"device '{name}' is not available here; use --device auto or cpu") from None
    return device


@contextmanager
def computing(config: Config) -> Iterator[None]:
    """Let torch compute as the config says, then as before."""
    deterministic = _same_every_time(config.device) if config.deterministic else nullcontext()
    with torch_threads(config.threads, one_dnn=config.model.precision != "float32"), deterministic:
        yield


@contextmanager
def _same_every_time(device: str) -> Iterator[None]:
    """Restrict torch to operations that give the same numbers every time; switching takes two seconds."""
    before = torch.are_deterministic_algorithms_enabled()
    # cuBLAS reads it when a process first asks it for something
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise ConfigError(
            f"torch cannot do all of this deterministically on {device} ({str(error).splitlines()[0][:120]}); "
            "add --device cpu, or leave out --deterministic"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def torch_threads(num_threads: int, one_dnn: bool = False) -> Iterator[None]:
    """Let torch and the linear algebra under numpy use so many threads, then as many as before.

    Without oneDNN, whose fixed cost per activation is several times that of torch's own on matrices of a few rows; only
    products in a lower precision need it.
    """
    before, had_one_dnn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(num_threads)
    torch.backends.mkldnn.enabled = one_dnn  # type: ignore[assignment]  # the stubs know the descriptor only
    try:
        with threadpool_limits(num_threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.mkldnn.enabled = had_one_dnn
