"""torchgfn's worker: a timed stretch of trajectory balance on its bit sequences and its grid."""

import argparse
from pathlib import Path
from typing import Any

import torch
from gfn.estimators import DiscretePolicyEstimator
from gfn.gflownet import TBGFlowNet
from gfn.gym.bitSequence import BitSequence
from gfn.gym.hypergrid import HyperGrid
from gfn.preprocessors import Preprocessor
from gfn.samplers import Sampler
from gfn.utils.modules import MLP
from torch.nn.functional import one_hot

from benchmarks.peers.clock import Stopwatch, say
from benchmarks.peers.reward import read_log_rewards, require_same
from benchmarks.peers.settings import (
    BETA,
    DIMENSIONS,
    GRID_REWARDS,
    GROUNDS,
    LEARNING_RATE,
    LENGTH,
    LETTERS,
    LOG_Z_LEARNING_RATE,
    NUM_BITS,
    SHAPES,
    SIDE,
    WIDTH,
    WORD_BITS,
)


class Sequences(BitSequence):
    """Eight words of two bits, with log R looked up in a table."""

    def __init__(self, log_rewards: torch.Tensor) -> None:
        super().__init__(word_size=2, seq_size=2 * LENGTH, n_modes=1)
        self._log_rewards = log_rewards
        self._powers = LETTERS ** torch.arange(LENGTH - 1, -1, -1)

    def log_reward(self, final_states: Any) -> torch.Tensor:
        return self._log_rewards[(final_states.tensor * self._powers).sum(dim=-1)]


class OneHot(Preprocessor):
    """Each place of a state by one letter of an alphabet; where places may be empty, the first letter says so."""

    def __init__(self, places: int, letters: int, first: int) -> None:
        super().__init__(output_dim=places * letters)
        self._letters, self._first = letters, first

    def preprocess(self, states: Any) -> torch.Tensor:
        return one_hot(states.tensor - self._first, self._letters).flatten(-2).float()


def sequences(ground: str, told: torch.Tensor) -> tuple[Any, Any, Any]:
    """Environment, forward policy and no backward one: prefixes form a tree, and the library has a way to say so."""
    if ground == "bits":
        # log R = −d/temperature
        env: Any = BitSequence(WORD_BITS, NUM_BITS, n_modes=1, temperature=NUM_BITS / BETA)
        env.modes = told.view(-1, NUM_BITS).long()
    else:
        env = Sequences(told.float())
    length, letters = SHAPES[ground]
    encoder = OneHot(length, letters + 1, -1)
    # three hidden layers: as many weights as the others
    return env, DiscretePolicyEstimator(MLP(encoder.output_dim, env.n_actions, WIDTH, 3), env.n_actions, encoder), None


def grid(told: torch.Tensor) -> tuple[Any, Any, Any]:
    """Environment, forward policy, and a learned backward one that shares all layers but the last."""
    rewards = dict(zip(("R0", "R1", "R2"), GRID_REWARDS, strict=True))
    env = HyperGrid(DIMENSIONS, SIDE, reward_fn_kwargs=rewards, validate_modes=False)
    encoder = OneHot(DIMENSIONS, SIDE, 0)
    forward = MLP(encoder.output_dim, env.n_actions, WIDTH, 3)
    backward = MLP(encoder.output_dim, env.n_actions - 1, WIDTH, 3, trunk=forward.trunk)
    positions = torch.cartesian_prod(*[torch.arange(SIDE)] * DIMENSIONS)
    require_same(told.numpy(), env.reward(env.states_from_tensor(positions)).log().numpy())
    policy = DiscretePolicyEstimator(forward, env.n_actions, encoder)
    return env, policy, DiscretePolicyEstimator(backward, env.n_actions, encoder, is_backward=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--iterations", type=int, required=True)
    options.add_argument("--warm-up", type=int, default=0)
    options.add_argument("--ground", choices=GROUNDS, default="tfbind8")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rewards", type=Path, required=True)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    told = torch.from_numpy(read_log_rewards(given.rewards))
    env, policy, backward = grid(told) if given.ground == "hypergrid" else sequences(given.ground, told)
    flownet = TBGFlowNet(policy, pb=backward, constant_pb=backward is None)
    rates = [
        {"params": flownet.pf_pb_parameters(), "lr": LEARNING_RATE},
        {"params": flownet.logz_parameters(), "lr": LOG_Z_LEARNING_RATE},
    ]
    optimiser = torch.optim.Adam(rates)
    sampler = Sampler(policy)

    def take_steps(num: int) -> None:
        for _ in range(num):
            # on-policy: the log-probabilities of sampling serve the loss, its fast way
            trajectories = sampler.sample_trajectories(env, n=given.batch, save_logprobs=True)
            optimiser.zero_grad()
            flownet.loss(env, trajectories, recalculate_all_logprobs=False).backward()
            optimiser.step()

    take_steps(given.warm_up)
    watch = Stopwatch()
    with watch:
        take_steps(given.iterations)
    parameters = sum(weight.numel() for weight in flownet.parameters())
    say(parameters=parameters, iterations=given.iterations, **watch.per_iteration(given.iterations))


if __name__ == "__main__":
    main()
