"""Words of messages."""


def counted(num: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "new value"), counted(96, "design")
    ('1 new value', '96 designs')
    """
    return f"{num:,} {noun}" if num == 1 else f"{num:,} {noun}s"
