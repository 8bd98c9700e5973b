"""Task whose score is a user's Python function."""

import importlib.util
import sys
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stochflow.config.oracle import OracleConfig
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import write_atomically
from stochflow.core.ray_cluster import RayCluster
from stochflow.environments.registry import ORACLE_PREFIX
from stochflow.environments.sequences.alphabets import named_alphabet
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.clients import InProcessClient, OracleClient, RefusingClient, WorkerClient
from stochflow.environments.sequences.oracles.oracle import Oracle
from stochflow.environments.sequences.oracles.ray_client import RayClient
from stochflow.environments.sequences.task import Alphabet, Task

Function = Callable[..., Any]

PREFIX = ORACLE_PREFIX
CACHE = "oracle.sqlite"
_PAYER = "oracle.id"


@dataclass(frozen=True)
class OnCluster:
    """A score function or its name, and the address of the Ray cluster that calls it; both named by the user."""

    function: Function | str
    address: str


# a score function or its name, as the user has given it; None where the user has given none
OracleFunction = Function | str | OnCluster | None


class OracleTask(Task):
    """Sequences scored by `package.module:function`, which takes a list of strings and returns as many numbers.

    The function is imported when the first score is needed, so that inspecting a run does not execute it. It is
    imported, and a shared cache is read, only if the user names it; a name in a file is not enough. Since calls cost
    something, the space is never enumerated, however small it is.

    Args:
        name: name of the function.
        function: the oracle as the user has named it: the same name, or the function itself where it cannot be
            imported by name; None for a task that only has the scores of its cache. A Ray cluster is joined only if
            the user names it too.
        alphabet: encoding of strings as tokens; by default one token per letter.
    """

    mode_threshold = 0.0

    def __init__(
        self,
        name: str,
        config: OracleConfig,
        function: OracleFunction = None,
        alphabet: Alphabet | None = None,
    ) -> None:
        if config.length is None or config.alphabet is None:
            raise ConfigError(
                f"the oracle '{name}' needs to know what a design is; give --length L and --alphabet dna, rna, protein "
                "or the letters"
            )
        address = None
        if isinstance(function, OnCluster):
            address, function = function.address, function.function
        if function is not None:
            _check_cluster(config, address)
        if callable(function) and (config.workers > 1 or config.cache is not None or config.engine == "ray"):
            raise ConfigError(
                f"the function '{name}' cannot be imported by that name, so it can have neither workers nor a shared "
                "cache; put it into a module"
            )
        if isinstance(function, str) and function != name:
            raise ConfigError(f"the oracle is '{name}', and --oracle names '{function}'; name the one that is meant")
        self.name = PREFIX + name
        self.description = f"designs scored by {name}"
        self.alphabet = named_alphabet(config.alphabet) if alphabet is None else alphabet
        self.length = config.length
        self._function_name, self._config, self._function = name, config, function
        self._oracle: Oracle | None = None
        self._cluster = RayCluster(config.workers, config.address)

    @property
    def enumerable(self) -> bool:
        return False

    def open(self, directory: Path) -> None:
        payer = payer_id(directory)
        shared = None if self._function is None else self._config.cache
        path = directory / CACHE if shared is None else Path(shared)
        # a function that cannot be imported by name is specific to its run
        key = f"{self._function_name}#{payer}" if callable(self._function) else self._function_name
        self._oracle = Oracle(self._function_name, self._clients(), ScoreCache(path, key, payer), self._config)

    def check(self) -> None:
        """Raise an error if the user has not named the function, or if it or the shared cache cannot be used."""
        if self._function is None:
            raise ConfigError(self._unnamed())
        if self._config.cache is not None:
            cache = ScoreCache(Path(self._config.cache), self._function_name, "")
            cache.check()
            cache.close()
        client = self._clients()[0]
        try:
            client.start()
        except BaseException:
            self._cluster.close()
            raise
        finally:
            client.close()

    def close(self) -> None:
        if self._oracle is not None:
            self._oracle.close()
        self._cluster.close()

    def score(self, tokens: Tensor) -> Tensor:
        """Scores from the cache, and from the function for designs that are not in it; → [num_sequences]."""
        return torch.tensor(self._opened.scores(self.alphabet.decode(tokens)), dtype=torch.float64)

    def known(self, tokens: Tensor) -> Tensor:
        if self._function is None and self._config.cache is not None:
            warnings.warn(
                f"scores in {self._config.cache} are left out, since a run may name any file; if you trust it, add "
                f"--oracle {self._function_name}",
                stacklevel=2,
            )
        return self._among(tokens, set(self._opened.cache.get(self.alphabet.decode(tokens))))

    def free(self, tokens: Tensor) -> Tensor:
        return self._among(tokens, self._opened.cache.paid_by_others(self.alphabet.decode(tokens)))

    @property
    def _opened(self) -> Oracle:
        if self._oracle is None:
            raise RuntimeError("open the task in a run directory before asking for scores")
        return self._oracle

    def _among(self, tokens: Tensor, designs: set[str]) -> Tensor:
        return torch.tensor([design in designs for design in self.alphabet.decode(tokens)], dtype=torch.bool)

    def _clients(self) -> list[OracleClient]:
        if self._function is None:
            return [RefusingClient(self._unnamed())]
        if callable(self._function):
            return [InProcessClient(self._function, self._function_name)]
        name, config = self._function_name, self._config
        if config.engine == "ray":
            return [RayClient(name, config.timeout, self._cluster) for _ in range(config.workers)]
        return [WorkerClient(name, config.timeout) for _ in range(config.workers)]

    def _unnamed(self) -> str:
        return (
            f"the oracle '{self._function_name}' is code, which runs only when you name it yourself; if you trust it, "
            f"add --oracle {self._function_name}"
        )


def _check_cluster(config: OracleConfig, named: str | None) -> None:
    """Refuse a cluster that only a file names, for whoever runs it can run code here."""
    if config.engine == "ray" and config.address not in (None, named):
        raise ConfigError(
            f"the Ray cluster '{config.address}' is joined only when you name it yourself; if you trust it, add "
            f"--address {config.address}"
        )


def payer_id(directory: Path) -> str:
    """Id under which a run directory records its oracle calls, created on first use."""
    path = directory / _PAYER
    try:
        if not path.exists():
            write_atomically(path, uuid.uuid4().hex + "\n")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be used ({error}); restore it or train again with another --out") from None


def function_name(function: Callable[..., Any]) -> tuple[str, bool]:
    """`package.module:function`, and whether another process can import it by that name."""
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    qualified = getattr(function, "__qualname__", kind.__qualname__)
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    importable = found is function and module != "__main__" and _has_source(module)
    return f"{module}:{qualified}", importable


def _has_source(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def named_task(oracle: Function | str | None, address: str | None = None) -> tuple[str | None, OracleFunction]:
    """Name of the task, and the oracle: its name, or the function itself where no other process can import it.

    Args:
        oracle: as the user has given it; without one there is no name either.
        address: of the Ray cluster that the user has named.
    """
    if oracle is None:
        if address is not None:
            raise ConfigError(f"--address {address} is a cluster that calls an oracle; name the oracle by --oracle")
        return None, None
    name, importable = (oracle, True) if isinstance(oracle, str) else function_name(oracle)
    function = name if importable else oracle
    return PREFIX + name, function if address is None else OnCluster(function, address)
