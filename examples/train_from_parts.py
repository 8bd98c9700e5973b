"""Training from parts: trajectory balance on noisy DNA, with a plain torch optimizer and nothing else.

python examples/train_from_parts.py
"""

import torch

from stochflow import (
    AlongPaths,
    FlowNetwork,
    Reward,
    SequenceEnvironment,
    make_task,
    policy_of,
    rollout,
    truth_of,
    uniform_slip,
)


def main(steps: int = 1_000, batch_size: int = 64) -> float:
    environment = SequenceEnvironment(make_task("tfbind8"), uniform_slip(4, alpha=0.25))
    reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    log_channel = environment.dynamics.log().float()  # [L, 4, 4]; known here, `stochflow train` learns it
    positions = torch.arange(environment.max_steps)
    network = FlowNetwork(num_tokens=4, length=8, kmers=(1, 3), width=64, num_layers=2)
    network.initialise(torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    streams = {name: torch.Generator().manual_seed(seed) for seed, name in enumerate(("policy", "channel"))}
    for _ in range(steps):
        # intentions a_t and what came of them
        walk = rollout(environment, network.sampler(batch_size), batch_size, streams)
        log_reward = reward.log_reward(environment.score(environment.made(walk.outcomes, walk.valid))).float()
        # log π(a|s) + log P(s'|s,a) − log π_B(a|s'), summed along every path
        heads = network.evaluate(AlongPaths(walk.outcomes, walk.valid, backward="learned")).heads()
        forward, backward = (
            log_probs.gather(-1, walk.intentions.unsqueeze(-1)).squeeze(-1)
            for log_probs in (heads.log_policy, heads.log_backward)
        )
        log_ratio = forward + log_channel[positions, walk.intentions, walk.outcomes] - backward
        residual = heads.log_flow[:, 0] + log_ratio.sum(dim=-1) - log_reward
        optimizer.zero_grad()
        residual.square().mean().backward()
        optimizer.step()
    figures = truth_of(environment, reward).evaluate(policy_of(network))
    print(f"KL {figures['kl']:.3f}, of which {figures['regret']:.3f} nats are not the noise's fault")
    return figures["regret"]


if __name__ == "__main__":
    main()
