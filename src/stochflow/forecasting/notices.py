"""What a forecaster says of its data: series left out, columns not used, categories never seen."""

import warnings
from collections.abc import Iterable, Mapping

import pandas as pd

from stochflow.core.errors import Note
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder
from stochflow.forecasting.data.features import as_text
from stochflow.forecasting.data.split import names_list
from stochflow.forecasting.storage import Fitted

_MOST = 20
_STACK = 3  # the caller of the forecaster's method


def warn_left_out(problems: Mapping[str, str]) -> None:
    """A note for each of the first series that cannot be used, and one for all others."""
    sentences = list(problems.values())
    if len(sentences) > _MOST:
        sentences[_MOST:] = [f"{len(sentences) - _MOST} more series; the forecaster's `problems` names them"]
    for sentence in sentences:
        warnings.warn(f"Left out: {sentence}", Note, stacklevel=_STACK)


def warn_unused(frame: pd.DataFrame, fitted: Fitted) -> None:
    """Warn of declared columns that forecasts do not use, and of numeric ones that were not declared."""
    columns = fitted.encoder.columns
    used_past = {name for gains in fitted.past.values() for name in gains}
    reads_all = fitted.trained.name == "transformer"
    constant = [name for name in columns.future if frame[name].nunique(dropna=True) < 2]
    _warn_not_used("future", constant, "they never change in the training table, so that their effect is unknown")
    useless = [name for name in columns.past if name not in used_past and not reads_all]
    _warn_not_used("past", useless, "on held-out origins they did not make forecasts better, or there were too few")
    if fitted.trained.network is None:
        _warn_not_used("static", columns.static, "only networks read them, and linear models alone were better")
    undeclared = undeclared_numbers(frame, columns)
    if undeclared:
        warnings.warn(
            f"these numeric columns are not used: {names_list(undeclared)}; declare them in "
            "Columns(future=…, past=…, static=…) or by --future, --past and --static, or drop them",
            stacklevel=_STACK,
        )


def undeclared_numbers(frame: pd.DataFrame, columns: Columns) -> list[str]:
    """Names of numeric columns without a role."""
    declared = {columns.id, columns.time, columns.target, *columns.features}
    found = [name for name in frame.columns if name not in declared]
    return [str(name) for name in found if pd.api.types.is_numeric_dtype(frame[name].dtype)]


def warn_unknown_categories(frame: pd.DataFrame | None, encoder: Encoder) -> None:
    """Warn of categories that the training table did not have; they count as missing."""
    if not isinstance(frame, pd.DataFrame):
        return
    for name, known in encoder.features.categories.items():
        if list(frame.columns).count(name) != 1:
            continue
        new = sorted({text for text in as_text(frame[name]) if text is not None} - set(known))
        if new:
            warnings.warn(
                f"column '{name}' has categories that training did not have: {names_list(new)}; they count as missing, "
                "correct them or fit again with them",
                stacklevel=_STACK,
            )


def _warn_not_used(role: str, names: Iterable[str], why: str) -> None:
    listed = list(names)
    if listed:
        warnings.warn(f"these {role} columns are not used: {names_list(listed)}; {why}; drop them", stacklevel=_STACK)
