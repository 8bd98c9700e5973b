"""Methods by name: what each one is, and the settings that make it."""

from dataclasses import dataclass
from typing import Any

from stochflow.errors import ConfigError


@dataclass(frozen=True)
class Method:
    """A named set of defaults.

    Attributes:
        description: one sentence for `stochflow methods`.
        uses: what the method is allowed to use beyond fresh trajectories.
        settings: overrides of the config's own defaults.
    """

    description: str
    uses: str
    settings: dict[str, Any]


METHODS: dict[str, Method] = {
    "sgfn-kl": Method(
        "KL to the target with the intention integrated out, state by state, values planned on visited prefixes.",
        "score memory, reward model, learned channel",
        {},
    ),
    "sgfn-kl-gamma": Method(
        "SGFN-KL with the entropy ratio averaged over γ = 0.25, 0.5, 0.75, fading to zero.",
        "score memory, reward model, learned channel",
        {"objective": {"gammas": [0.25, 0.5, 0.75], "lambda_ratio": 0.003, "lambda_dynamics": 0.003}},
    ),
    "sgfn-kl-bootstrap": Method(
        "SGFN-KL state by state with log F bootstrapped from its own children.",
        "score memory, replay, learned channel",
        {
            "objective": {"values": "bootstrapped", "flow_weight": 1.0},
            "optimiser": {"learning_rate": 5e-3, "updates": 4, "batch_size": 128},
        },
    ),
    "sgfn-kl-trajectory": Method(
        "SGFN-KL over whole on-policy trajectories: half the batch variance of log R − Σ log M.",
        "learned channel",
        {"objective": {"scope": "trajectory"}, "optimiser": {"learning_rate": 5e-3, "batch_size": 64, "updates": 1}},
    ),
    "sgfn-db": Method(
        "Stochastic detailed balance over intended transitions, with a learned backward policy.",
        "score memory, replay, learned channel",
        {
            "objective": {"kind": "detailed-balance"},
            "exploration": {"epsilon": 0.05},
            "optimiser": {"learning_rate": 5e-3, "updates": 16, "batch_size": 256},
        },
    ),
}


def method_settings(name: str) -> dict[str, Any]:
    """Config overrides of a method, or an error that lists the names there are."""
    if name not in METHODS:
        raise ConfigError(f"unknown method '{name}'; choose one of: {', '.join(METHODS)}")
    return METHODS[name].settings
