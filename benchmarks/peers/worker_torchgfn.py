"""torchgfn's worker: a timed stretch of trajectory balance on its bit sequences in the shape of TFBind8."""

import argparse
from pathlib import Path
from typing import Any

import torch
from gfn.estimators import DiscretePolicyEstimator
from gfn.gflownet import TBGFlowNet
from gfn.gym.bitSequence import BitSequence
from gfn.preprocessors import Preprocessor
from gfn.samplers import Sampler
from gfn.utils.modules import MLP
from torch.nn.functional import one_hot

from benchmarks.peers.clock import Stopwatch, say
from benchmarks.peers.reward import read_log_rewards
from benchmarks.peers.settings import LEARNING_RATE, LENGTH, LETTERS, LOG_Z_LEARNING_RATE, WIDTH


class Sequences(BitSequence):
    """Eight words of two bits, with log R looked up in a table."""

    def __init__(self, log_rewards: torch.Tensor) -> None:
        super().__init__(word_size=2, seq_size=2 * LENGTH, n_modes=1)
        self._log_rewards = log_rewards
        self._powers = LETTERS ** torch.arange(LENGTH - 1, -1, -1)

    def log_reward(self, final_states: Any) -> torch.Tensor:
        return self._log_rewards[(final_states.tensor * self._powers).sum(dim=-1)]


class OneHot(Preprocessor):
    """Each word by one of five letters, the fifth for a place that is still empty; as in the other two libraries."""

    def __init__(self) -> None:
        super().__init__(output_dim=LENGTH * (LETTERS + 1))

    def preprocess(self, states: Any) -> torch.Tensor:
        return one_hot(states.tensor + 1, LETTERS + 1).flatten(-2).float()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--iterations", type=int, required=True)
    options.add_argument("--warm-up", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rewards", type=Path, required=True)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    env = Sequences(torch.from_numpy(read_log_rewards(given.rewards)).float())
    encoder = OneHot()
    # three hidden layers: as many weights as the others
    policy = DiscretePolicyEstimator(MLP(encoder.output_dim, env.n_actions, WIDTH, 3), env.n_actions, encoder)
    # a tree: the backward policy is one, and the library has a way to say so
    flownet = TBGFlowNet(policy, pb=None, constant_pb=True)
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
