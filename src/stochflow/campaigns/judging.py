"""Judgement of designs that somebody else proposes."""

import pandas as pd
import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.history import History
from stochflow.campaigns.score_model import predict_orders

_BLOCK = 2**24  # entries of a block of distances


def judge(history: History, space: DesignSpace, sequences: list[str]) -> pd.DataFrame:
    """One row per candidate: predicted score with its interval, and what is known about it."""
    evidence, tokens = history.evidence(), space.alphabet.encode(sequences)
    found = predict_orders(space, evidence, tokens)
    rows, distance = nearest(tokens, evidence.tokens)
    measured = space.alphabet.decode(evidence.tokens)
    columns = {
        "sequence": sequences,
        "predicted": found.mean.numpy(),
        "low": found.low.numpy(),
        "high": found.high.numpy(),
        "expected": found.expected.numpy(),
        "probability": space.channel.exact_probability(tokens).numpy(),
        "nearest": [measured[row] if measured else "" for row in rows.tolist()],
        "distance": distance.numpy() if measured else pd.array([pd.NA] * len(tokens), dtype="Int64"),
        "measured": pd.Series(sequences).isin(measured),
        "pending": pd.Series(sequences).isin(history.pending["design"]),
        "feasible": space.feasible(tokens).numpy(),
    }
    return pd.DataFrame(columns)


def nearest(tokens: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Row of the nearest other sequence, and in how many letters it differs; [num, L], [n, L] → [num], [num]."""
    if not len(others):
        return torch.zeros(len(tokens), dtype=torch.int64), torch.zeros(len(tokens), dtype=torch.int64)
    size = max(1, _BLOCK // others.numel())
    blocks = [(block.unsqueeze(1) != others).sum(dim=-1).min(dim=1) for block in tokens.split(size)]
    return torch.cat([block.indices for block in blocks]), torch.cat([block.values for block in blocks])
