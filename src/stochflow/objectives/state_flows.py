"""log F where a path goes on, and where it might have gone."""

import torch
from torch import Tensor

from stochflow.objectives.base import Learner


def terminal_flows(log_flow: Tensor, log_reward: Tensor) -> Tensor:
    """log F(s') of every step with F(x) = R(x) at the end (`end_log_flow`).

    Args:
        log_flow: log F of the proper prefixes, [batch, time].
        log_reward: [batch].

    Returns:
        [batch, time].
    """
    return torch.cat([log_flow[:, 1:], log_reward.to(log_flow.dtype).unsqueeze(-1)], dim=1)


def child_flows(learner: Learner, outcomes: Tensor, step: int) -> Tensor:
    """log F of all K children of every prefix; a paid leaf counts its log R; [batch, L] → [batch, L, K].

    The flows are targets: the network gives them without gradient. A leaf that was never paid for has the flow head's
    own guess.
    """
    num_tokens = learner.network.num_tokens
    flows = learner.network.child_log_flows(outcomes)
    prefixes = outcomes[:, :-1].cpu().repeat_interleave(num_tokens, dim=0)
    letters = torch.arange(num_tokens).repeat(len(outcomes)).unsqueeze(-1)
    leaves = torch.cat([prefixes, letters], dim=1)
    log_reward = (
        learner.log_rewards(leaves, learner.memory.lookup(leaves), step).float().view(-1, num_tokens).to(flows.device)
    )
    flows[:, -1] = torch.where(log_reward.isnan(), flows[:, -1], log_reward)
    return flows
