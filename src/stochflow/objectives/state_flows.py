"""Paths of a batch and the state flows log F along them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Paths(NamedTuple):
    """What is known of a batch before any network is evaluated.

    Attributes:
        intentions: [batch, time].
        outcomes: [batch, time].
        valid: True where a step counts, [batch, time].
        log_reward: log R(x), [batch].
    """

    intentions: Tensor
    outcomes: Tensor
    valid: Tensor
    log_reward: Tensor


def path_flows(log_flow: Tensor, paths: Paths) -> tuple[Tensor, Tensor]:
    """log F(s_t) and log F(s_{t+1}) of every step with F(x) = R(x) at the end (`end_log_flow`); [batch, time] each.

    After the end of an episode, where no step is taken any more, both are log R(x).

    Args:
        log_flow: log F of the states before every step, [batch, time].
    """
    log_reward = paths.log_reward.to(log_flow.dtype).unsqueeze(-1)
    # an episode has ended before a step if no step is taken from there on
    ended = paths.valid.flip(-1).cumsum(dim=-1).flip(-1) == 0
    log_flow = torch.where(ended, log_reward, log_flow)
    return log_flow, torch.cat([log_flow[:, 1:], log_reward], dim=1)
