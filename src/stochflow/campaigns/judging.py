"""Judgement of designs that somebody else proposes."""

import pandas as pd
import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.history import History
from stochflow.campaigns.proposal import predict

_DRAWS = 32  # outcomes of an order over which its score is averaged
_MAX_ROWS = 20_000
_BLOCK = 2**24  # entries of a block of distances


def judge(history: History, space: DesignSpace, sequences: list[str], seed: int) -> pd.DataFrame:
    """One row per candidate: predicted score with its interval, and what is known about it."""
    evidence, tokens = history.evidence(), space.alphabet.encode(sequences)
    outcomes = _outcomes(space, tokens, seed)
    everything = predict(space, evidence, torch.cat([tokens, outcomes]))
    prediction, of_outcomes = everything[: len(tokens)], everything.mean[len(tokens) :]
    low, high = prediction.interval()
    rows, distance = nearest(tokens, evidence.tokens)
    measured = space.alphabet.decode(evidence.tokens)
    columns = {
        "sequence": sequences,
        "predicted": prediction.mean.numpy(),
        "low": low.numpy(),
        "high": high.numpy(),
        "expected": of_outcomes.view(-1, len(tokens)).mean(dim=0).numpy(),
        "probability": space.probability_exact(tokens).numpy(),
        "nearest": [measured[row] if measured else "" for row in rows.tolist()],
        "distance": distance.numpy() if measured else pd.array([pd.NA] * len(tokens), dtype="Int64"),
        "measured": pd.Series(sequences).isin(measured),
        "pending": pd.Series(sequences).isin(history.pending["design"]),
        "feasible": space.feasible(tokens).numpy(),
    }
    return pd.DataFrame(columns)


def _outcomes(space: DesignSpace, tokens: Tensor, seed: int) -> Tensor:
    """Draws of what the channel makes of every order, one block after the other; [num, L] → [num_draws · num, L].

    The mean of their scores is the expected score of an order. Where that is too much there is no draw, and no mean.
    """
    if space.channel.slip == 0.0:
        return tokens
    num_draws = _DRAWS if len(tokens) * _DRAWS <= _MAX_ROWS else 0
    return space.realised(tokens.repeat(num_draws, 1), torch.Generator().manual_seed(seed))


def nearest(tokens: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Row of the nearest other sequence, and in how many letters it differs; [num, L], [n, L] → [num], [num]."""
    if not len(others):
        return torch.zeros(len(tokens), dtype=torch.int64), torch.zeros(len(tokens), dtype=torch.int64)
    size = max(1, _BLOCK // others.numel())
    blocks = [(block.unsqueeze(1) != others).sum(dim=-1).min(dim=1) for block in tokens.split(size)]
    return torch.cat([block.indices for block in blocks]), torch.cat([block.values for block in blocks])
