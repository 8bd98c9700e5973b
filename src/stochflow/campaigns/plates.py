"""Wells of plates: A1 … H12 on 96, A1 … P24 on 384, row by row."""

from typing import NamedTuple

_SHAPES = {96: (8, 12), 384: (16, 24)}


class Plate(NamedTuple):
    """The format of a plate."""

    num_rows: int
    num_columns: int

    @property
    def rows(self) -> str:
        """Letters of the rows, from the top."""
        return "ABCDEFGHIJKLMNOP"[: self.num_rows]

    @property
    def wells(self) -> list[str]:
        """Names of all wells, row by row."""
        return [f"{row}{column}" for row in self.rows for column in range(1, self.num_columns + 1)]


def plate_for(batch: int) -> Plate:
    """The smallest plate that has a well for each design of a batch; 384 wells for larger ones too.

    >>> plate_for(96).wells[-1], plate_for(97).wells[-1]
    ('H12', 'P24')
    """
    return Plate(*_SHAPES[96 if batch <= 96 else 384])


def places(num: int, ask: int, batch: int) -> list[tuple[str, str]]:
    """Plate and well of every design of an ask, on as many plates as it needs.

    >>> places(2, ask=3, batch=96)
    [('p3', 'A1'), ('p3', 'A2')]
    >>> places(97, ask=3, batch=96)[-1]
    ('p3.2', 'A1')
    """
    wells = plate_for(batch).wells
    names = [f"p{ask}" if num <= len(wells) else f"p{ask}.{number // len(wells) + 1}" for number in range(num)]
    return [(name, wells[number % len(wells)]) for number, name in enumerate(names)]
