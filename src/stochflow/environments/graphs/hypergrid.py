"""Hypergrid: walk up from the corner of a D-dimensional grid and stop where the reward is."""

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.graph import Graph, check_extent
from stochflow.environments.registry import numbers_in

DEFAULT = (2, 8)
# of the grid of Pan et al. 2023 (arXiv:2302.09465): everywhere, in the corners, in the modes within them
REWARDS = (1e-3, 0.5, 2.0)
_MODE_SHARE = 0.99  # of the best score


def corner_rewards(positions: Tensor, side: int, rewards: tuple[float, float, float] = REWARDS) -> Tensor:
    """R0 + R1·Π_i 1[|x_i/(H − 1) − ½| > ¼] + R2·Π_i 1[0.3 < |x_i/(H − 1) − ½| < 0.4]; [num, D] → float64, [num]."""
    everywhere, corner, mode = rewards
    off_centre = (positions.double() / (side - 1) - 0.5).abs()
    in_corner = (off_centre > 0.25).all(dim=-1)
    in_mode = ((off_centre > 0.3) & (off_centre < 0.4)).all(dim=-1)
    return everywhere + corner * in_corner.double() + mode * in_mode.double()


def hypergrid(parameters: str, slip: float) -> Graph:
    """The grid that stands after the colon; without numbers the 8 × 8 grid.

    An intention adds one to a coordinate that is not at its end, or stops. With probability α = `slip` an intended move
    is redrawn uniformly among the moves that are possible here, the intended one included; stopping is never slipped
    to or from. In two dimensions a state at a border has one move left, so nothing slips there.
    """
    dimensions, side = DEFAULT
    if parameters:
        dimensions, side = numbers_in(parameters, "hypergrid", 2, 2)
    name = f"hypergrid:{dimensions},{side}" if parameters else "hypergrid"
    if side < 2:
        raise ConfigError(f"'{name}' has nowhere to go; give it a side of at least 2")
    # 64 of them are too many for any side: the power of a million dimensions is no number to compute first
    num_states = side ** min(dimensions, 64)
    num_actions, num_features, num_steps = dimensions + 1, dimensions * side + 1, dimensions * (side - 1) + 1
    check_extent(name, num_states, 2 * num_states, num_actions, num_actions, num_features, num_steps)
    positions = _positions(dimensions, side)
    children, dynamics, kinds = _steps(positions, side, slip)
    depths = positions.sum(dim=-1)
    scores = corner_rewards(positions, side)
    return Graph(
        name=name,
        description=f"Stop in the modes of a {' × '.join([str(side)] * min(dimensions, 4))} grid; a DAG, not a tree.",
        noise=slip,
        actions=(*(f"+{axis + 1}" for axis in range(dimensions)), "stop"),
        children=children,
        dynamics=dynamics,
        kinds=kinds,
        depths=torch.cat([depths, depths + 1]),
        features=_features(positions, side),
        scores=scores,
        labels=[",".join(map(str, position)) for position in positions.tolist()],
        mode_threshold=_MODE_SHARE * float(scores.max()),
        outcomes_are_intentions=True,
    )


def _positions(dimensions: int, side: int) -> Tensor:
    """All positions, the origin first, [H^D, D]."""
    codes = torch.arange(side**dimensions).unsqueeze(-1)
    return codes // side ** torch.arange(dimensions - 1, -1, -1) % side


def _steps(positions: Tensor, side: int, slip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Children, P(outcome|s,a) and the kind of each state: which of the moves are possible."""
    num_states, dimensions = positions.shape
    strides = side ** torch.arange(dimensions - 1, -1, -1)
    numbers = torch.arange(num_states).unsqueeze(-1)
    possible = positions < side - 1  # [S, D]
    children = torch.cat([torch.where(possible, numbers + strides, -1), numbers + num_states], dim=-1)
    redrawn = possible.double() / possible.sum(dim=-1, keepdim=True).clamp_min(1)
    intended = torch.eye(dimensions, dtype=torch.float64)
    moves = ((1.0 - slip) * intended + slip * redrawn.unsqueeze(1)) * possible.unsqueeze(-1)  # [S, D, D]
    dynamics = torch.zeros(num_states, dimensions + 1, dimensions + 1, dtype=torch.float64)
    dynamics[:, :dimensions, :dimensions] = moves
    dynamics[:, -1, -1] = 1.0
    kinds = possible.long().unique(dim=0, return_inverse=True)[1]
    return children, dynamics, kinds


def _features(positions: Tensor, side: int) -> Tensor:
    """Each coordinate one-hot, and whether the walk has stopped; [2·S, D·H + 1]."""
    located = torch.nn.functional.one_hot(positions, side).flatten(1).float()
    stopped = torch.cat([torch.zeros(len(positions), 1), torch.ones(len(positions), 1)])
    return torch.cat([torch.cat([located, located]), stopped], dim=-1)
