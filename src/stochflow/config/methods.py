"""Methods by name: what each one is, and the settings that make it."""

from dataclasses import dataclass
from typing import Any

from stochflow.core.errors import ConfigError


@dataclass(frozen=True)
class Method:
    """A named set of defaults.

    Attributes:
        description: one sentence for `stochflow methods`.
        uses: what the method is allowed to use beyond fresh trajectories.
        settings: overrides of the config's own defaults.
        reference: where it comes from.
    """

    description: str
    uses: str
    settings: dict[str, Any]
    reference: str


# what all balance conditions share, so that they differ in the condition alone
_BALANCE: dict[str, Any] = {
    "exploration": {"epsilon": 0.05},
    "optimiser": {"learning_rate": 5e-3, "updates": 16, "batch_size": 256},
}

# the world's noise is entropy that nobody has to pay for: with less of their own, intentions come closer to R/Z. The
# best of 0.6 and 1 on TFBind8 at α = 0.25; without noise 1 is exact
_TEMPERATURE = 0.6

METHODS: dict[str, Method] = {
    "sgfn-kl": Method(
        "KL to the target with the intention integrated out, state by state, values planned on visited prefixes.",
        "score memory, reward model, learned channel",
        {},
        "defined in docs/method.md; the recursion is that of maximum-entropy control (Ziebart 2010)",
    ),
    "sgfn-kl-gamma": Method(
        "SGFN-KL with the entropy ratio averaged over γ = 0.25, 0.5, 0.75, fading to zero.",
        "score memory, reward model, learned channel",
        {"objective": {"gammas": [0.25, 0.5, 0.75], "lambda_ratio": 0.003, "lambda_dynamics": 0.003}},
        "defined in docs/method.md",
    ),
    "sgfn-kl-bootstrap": Method(
        "SGFN-KL state by state with log F bootstrapped from its own children.",
        "score memory, replay, learned channel",
        {
            "objective": {"values": "bootstrapped", "flow_weight": 1.0},
            "optimiser": {"learning_rate": 5e-3, "updates": 4, "batch_size": 128},
        },
        "defined in docs/method.md",
    ),
    "sgfn-kl-trajectory": Method(
        "SGFN-KL over whole on-policy trajectories: half the batch variance of log R − Σ log M.",
        "learned channel",
        {"objective": {"scope": "trajectory"}, "optimiser": {"learning_rate": 5e-3, "batch_size": 64, "updates": 1}},
        "defined in docs/method.md; the variance loss is VarGrad (Richter et al. 2020, arXiv:2010.10436)",
    ),
    "sgfn-db": Method(
        "Stochastic detailed balance over intended transitions, with a learned backward policy.",
        "score memory, replay, learned channel",
        {"objective": {"kind": "detailed-balance"}, **_BALANCE},
        "Pan et al. 2023, Stochastic generative flow networks, arXiv:2302.09465",
    ),
    "sgfn-tb": Method(
        "Stochastic trajectory balance over intentions, with log P̂ and a learned backward policy.",
        "score memory, replay, learned channel",
        {"objective": {"kind": "trajectory-balance"}, **_BALANCE},
        "Malkin et al. 2022, arXiv:2201.13259, with the dynamics of Pan et al. 2023, arXiv:2302.09465",
    ),
    "edb": Method(
        "EFlowNet's expected detailed balance: an intention carries the mean of the flows it may lead to.",
        "score memory, replay, learned channel",
        {"objective": {"kind": "expected-balance"}, **_BALANCE},
        "Jiralerspong et al. 2024, Expected flow networks, arXiv:2310.02779",
    ),
    "gfn-db": Method(
        "Detailed balance of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        {"objective": {"kind": "detailed-balance", "path": "realised"}, **_BALANCE},
        "Bengio et al. 2023, GFlowNet foundations, arXiv:2111.09266",
    ),
    "gfn-tb": Method(
        "Trajectory balance of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        {"objective": {"kind": "trajectory-balance", "path": "realised"}, **_BALANCE},
        "Malkin et al. 2022, Trajectory balance, arXiv:2201.13259",
    ),
    "gfn-subtb": Method(
        "Subtrajectory balance SubTB(λ) of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        {"objective": {"kind": "subtrajectory-balance", "path": "realised"}, **_BALANCE},
        "Madan et al. 2023, Learning GFlowNets from partial episodes, arXiv:2209.12782",
    ),
    "soft-q": Method(
        "Soft Q-learning over intentions, the actor paid for the entropy of outcomes.",
        "replay, learned channel",
        {
            "objective": {"kind": "soft-q"},
            "dynamics": {"learning_rate": 0.1},
            "optimiser": {"learning_rate": 5e-3, "updates": 8, "batch_size": 128},
        },
        reference="Haarnoja et al. 2017, Reinforcement learning with deep energy-based policies",
    ),
    "sac": Method(
        "Discrete soft actor-critic: twin critics, entropy of intentions at a fixed temperature.",
        "replay",
        {
            "objective": {"kind": "sac"},
            "rl": {"temperature": _TEMPERATURE},
            "optimiser": {"learning_rate": 5e-3, "updates": 8, "batch_size": 128},
        },
        reference="Haarnoja et al. 2018, Soft actor-critic; Christodoulou 2019, its discrete form",
    ),
    "ppo": Method(
        "Clipped policy gradient with a value baseline, log R at the end and entropy on the way.",
        "fresh trajectories only",
        {
            "objective": {"kind": "ppo"},
            "rl": {"temperature": _TEMPERATURE},
            "optimiser": {"learning_rate": 3e-3, "updates": 8, "batch_size": 128},
        },
        reference="Schulman et al. 2017, Proximal policy optimization algorithms",
    ),
    "mcmc": Method(
        "Metropolis–Hastings chains that mutate one letter; designs repeat the states of the second half.",
        "states of the chains",
        {"objective": {"kind": "mcmc"}, "optimiser": {"batch_size": 128}},
        reference="Metropolis et al. 1953; Hastings 1970",
    ),
    "mars": Method(
        "Annealed chains whose edits are proposed by a network that learns from improvements.",
        "states of the chains, improvements, learned channel",
        {
            "objective": {"kind": "mars"},
            "chains": {"heat": 3.0},
            "optimiser": {"learning_rate": 1e-3, "updates": 1, "batch_size": 128},
        },
        reference="Xie et al. 2021, MARS: Markov molecular sampling for multi-objective drug discovery",
    ),
    "random": Method(
        "Uniformly random intentions; nothing is learned.",
        "nothing",
        {"objective": {"kind": "random"}},
        reference="docs/method.md, Rivals",
    ),
}


def method_settings(name: str) -> dict[str, Any]:
    """Config overrides of a method, or an error that lists the names there are."""
    if name not in METHODS:
        raise ConfigError(f"unknown method '{name}'; choose one of: {', '.join(METHODS)}")
    return METHODS[name].settings
