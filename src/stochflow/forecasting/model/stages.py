"""What is being fitted, and how far it has come."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """A stage of fitting: `done` of `total` series or updates, and of a network the relative CRPS gain so far."""

    name: str
    done: int
    total: int
    gain: float | None = None

    @property
    def text(self) -> str:
        """The stage in words.

        >>> Stage("mlp network", 50, 2000, 0.012).text
        'mlp network: +1.2% on held-out origins'
        """
        return self.name if self.gain is None else f"{self.name}: {self.gain:+.1%} on held-out origins"


Report = Callable[[Stage], None]


def no_report(stage: Stage) -> None:
    """Report nothing."""


def each(items: list[T], name: str, report: Report) -> Iterator[T]:
    """The items, with a report before each.

    >>> seen = []
    >>> list(each(["a", "b"], "linear models", lambda stage: seen.append((stage.done, stage.total))))
    ['a', 'b']
    >>> seen
    [(0, 2), (1, 2)]
    """
    for done, item in enumerate(items):
        report(Stage(name, done, len(items)))
        yield item
