"""What the page of a campaign shows, as JSON: where it stands, its rounds, and one plate well by well."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

import stochflow

_WELL = re.compile(r"([A-P])([1-9][0-9]?)")
_TEXTS = ("id", "design", "plate", "well", "why", "state")
_NUMBERS = ("predicted", "low", "high", "probability", "score")
_LAYOUTS = ("plate.csv", "map.csv", "fasta.fasta", "idt.csv", "twist.csv")


def campaign_view(path: Path, ask: int | None = None) -> dict[str, Any]:
    """Everything about a campaign as it is now.

    Args:
        ask: number of the plate to show, the last one by default.
    """
    campaign = stochflow.Campaign.open(path)
    settings, history = campaign.settings, campaign.history()
    last = len(history.asks)
    number = last if ask is None or not 1 <= ask <= last else ask
    names = ("alphabet", "length", "noise", "batch", "seed")
    standing = asdict(campaign.status())
    vendors = settings.space.alphabet.letters == "ACGT"
    return {
        "settings": {name: getattr(settings, name) for name in names},
        "constraints": settings.constraints.model_dump(exclude_defaults=True),
        "status": {name: _finite(value) for name, value in standing.items()},
        "rounds": _rounds(history.orders, history.designs),
        "tells": [_tell(row) for row in history.tells.to_dict("records")],
        "asks": last,
        "ask": number or None,
        "shape": [8, 12] if settings.batch <= 96 else [16, 24],
        "plates": _plates(history.orders[history.orders["ask"] == number]) if number else [],
        "scale": _scale(history.orders),
        "layouts": [layout for layout in _LAYOUTS if vendors or layout[:3] not in ("idt", "twi")],
    }


def _tell(row: Mapping[Any, Any]) -> dict[str, Any]:
    undone = isinstance(row["undone"], str)
    return {"number": int(row["tell"]), "file": str(row["file"]), "at": str(row["at"]), "undone": undone}


def _rounds(orders: pd.DataFrame, results: pd.DataFrame) -> list[dict[str, Any]]:
    """What was told of designs that were not ordered here, and one entry for each ask."""
    scores = results[(results["property"] == "score") & ~results["design"].isin(orders["design"])]["value"]
    found = [_round("before", pd.Series(dtype=str), scores.dropna().astype(float))] if scores.notna().any() else []
    for number, part in orders.groupby("ask", sort=True):
        found.append(_round(f"round {number}", part["state"], part["score"].dropna()))
    return found


def _round(name: str, states: "pd.Series[str]", scores: "pd.Series[float]") -> dict[str, Any]:
    counts = {state: int((states == state).sum()) for state in ("pending", "failed")}
    mean, best = (float(scores.mean()), float(scores.max())) if len(scores) else (None, None)
    return {"name": name, "measured": len(scores), "mean": mean, "best": best, "ordered": len(states), **counts}


def _plates(orders: pd.DataFrame) -> list[dict[str, Any]]:
    """Wells of every plate of an ask."""
    return [
        {"name": str(name), "wells": [_well(row) for row in part.to_dict("records")]}
        for name, part in orders.groupby("plate", sort=False)
    ]


def _well(row: Mapping[Any, Any]) -> dict[str, Any]:
    found = _WELL.fullmatch(str(row["well"]))
    place = {} if found is None else {"row": ord(found[1]) - ord("A"), "column": int(found[2]) - 1}
    numbers = {name: _finite(float(row[name])) for name in _NUMBERS}
    return {name: str(row[name]) for name in _TEXTS} | numbers | place


def _scale(orders: pd.DataFrame) -> list[float] | None:
    """Lowest and highest number on any plate: one scale of colour for all."""
    found = pd.concat([orders["predicted"], orders["score"]]).dropna()
    return [float(found.min()), float(found.max())] if len(found) else None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
