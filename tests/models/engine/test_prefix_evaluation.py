"""Heads of the engine under a mask."""

import torch

from stochflow.config.layers import resolve
from stochflow.experiments.build import build
from stochflow.models.evaluation import AlongPaths


def test_intentions_that_a_mask_forbids_learn_nothing() -> None:
    settings = {"task": "tfbind8", "constraints": {"fixed": "A.......", "forbid": ["GG"]}, "model": {"width": 8}}
    network = build(resolve([settings])).trainer.learner.network
    outcomes = torch.randint(4, (6, 8), generator=torch.Generator().manual_seed(0))
    outcomes[:, 0] = 0
    heads = network.evaluate(AlongPaths(outcomes, torch.ones_like(outcomes, dtype=torch.bool))).heads()
    assert heads.allowed is not None
    assert not bool(heads.allowed.all())
    heads.log_policy[~heads.allowed].sum().backward()
    assert all(weight.grad is None or not bool(weight.grad.any()) for weight in network.parameters())
