"""Numbers in a task's name: `bits:120,8`."""

import re

from stochflow.core.errors import ConfigError


def numbers_in(text: str, name: str, form: str, least: int, most: int) -> list[int]:
    """Whole numbers of at least one, separated by commas.

    Args:
        text: what stands after the colon.
        name: the whole name, for the error.
        form: how such names look, for the error.
        least, most: how many numbers there may be.
    """
    parts = text.split(",")
    if not least <= len(parts) <= most or not all(re.fullmatch(r"[1-9][0-9]{0,8}", part) for part in parts):
        raise ConfigError(f"task '{name}' is not understood; write {form} with whole numbers of at least one")
    return [int(part) for part in parts]
