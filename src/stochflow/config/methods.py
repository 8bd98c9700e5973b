"""Methods by name, each one record: what it is, the objective behind it with its traits, and its settings.

A new method is a class in a file of its own and one record here; one of another package is an entry point of the group
`stochflow.methods`, or `register_method`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stochflow.config import objectives
from stochflow.config.objectives import ObjectiveRecord
from stochflow.core.errors import ConfigError
from stochflow.core.plugins import plugins, reason_of, unusable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stochflow.methods"


@dataclass(frozen=True)
class Method:
    """A named set of defaults over an objective.

    Attributes:
        description: one sentence for `stochflow methods`.
        uses: what the method is allowed to use beyond fresh trajectories.
        objective: what it minimises.
        settings: overrides of the config's own defaults, beyond those that choose the objective.
        reference: where it comes from.
    """

    description: str
    uses: str
    objective: ObjectiveRecord
    settings: dict[str, Any]
    reference: str


# what all balance conditions share, so that they differ in the condition alone
_BALANCE: dict[str, Any] = {
    "exploration": {"epsilon": 0.05},
    "optimiser": {"learning_rate": 5e-3, "updates": 16, "batch_size": 256},
}
_BLIND_BALANCE = {**_BALANCE, "objective": {"path": "realised"}}

_PROXY_BALANCE = {**_BLIND_BALANCE, "optimiser": {"learning_rate": 5e-3, "updates": 32, "batch_size": 256}}

# the world's noise is entropy that nobody has to pay for: with less of their own, intentions come closer to R/Z. The
# best of 0.6 and 1 on TFBind8 at α = 0.25; without noise 1 is exact
_TEMPERATURE = 0.6

METHODS: dict[str, Method] = {
    "sgfn-kl": Method(
        "KL to the target with the intention integrated out, state by state, values planned on visited prefixes.",
        "score memory, reward model, learned channel",
        objectives.PLANNED_KL,
        {},
        "defined in docs/explanation/method.md; the recursion is that of maximum-entropy control (Ziebart 2010)",
    ),
    "sgfn-kl-gamma": Method(
        "SGFN-KL with the entropy ratio averaged over γ = 0.25, 0.5, 0.75, fading to zero.",
        "score memory, reward model, learned channel",
        objectives.PLANNED_KL,
        {"objective": {"gammas": [0.25, 0.5, 0.75], "lambda_ratio": 0.003, "lambda_dynamics": 0.003}},
        "defined in docs/explanation/method.md",
    ),
    "sgfn-kl-bootstrap": Method(
        "SGFN-KL state by state with log F bootstrapped from its own children.",
        "score memory, replay, learned channel",
        objectives.BOOTSTRAPPED_KL,
        {
            "objective": {"flow_weight": 1.0},
            "optimiser": {"learning_rate": 5e-3, "updates": 4, "batch_size": 128},
        },
        "defined in docs/explanation/method.md",
    ),
    "sgfn-kl-trajectory": Method(
        "SGFN-KL over whole on-policy trajectories: half the batch variance of log R − Σ log M.",
        "learned channel; history (--context) where noise has memory",
        objectives.TRAJECTORY_KL,
        {"optimiser": {"learning_rate": 5e-3, "batch_size": 64, "updates": 1}},
        "defined in docs/explanation/method.md; the variance loss is VarGrad (Richter et al. 2020, arXiv:2010.10436)",
    ),
    "sgfn-db": Method(
        "Stochastic detailed balance over intended transitions, with a learned backward policy.",
        "score memory, replay, learned channel",
        objectives.DETAILED_BALANCE,
        _BALANCE,
        "Pan et al. 2023, Stochastic generative flow networks, arXiv:2302.09465",
    ),
    "sgfn-tb": Method(
        "Stochastic trajectory balance over intentions, with log P̂ and a learned backward policy.",
        "score memory, replay, learned channel; history (--context) where noise has memory",
        objectives.TRAJECTORY_BALANCE,
        _BALANCE,
        "Malkin et al. 2022, arXiv:2201.13259, with the dynamics of Pan et al. 2023, arXiv:2302.09465",
    ),
    "edb": Method(
        "EFlowNet's expected detailed balance: an intention carries the mean of the flows it may lead to.",
        "score memory, replay, learned channel",
        objectives.EXPECTED_BALANCE,
        _BALANCE,
        "Jiralerspong et al. 2024, Expected flow networks, arXiv:2310.02779",
    ),
    "gfn-db": Method(
        "Detailed balance of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        objectives.DETAILED_BALANCE,
        _BLIND_BALANCE,
        "Bengio et al. 2023, GFlowNet foundations, arXiv:2111.09266",
    ),
    "gfn-tb": Method(
        "Trajectory balance of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        objectives.TRAJECTORY_BALANCE,
        _BLIND_BALANCE,
        "Malkin et al. 2022, Trajectory balance, arXiv:2201.13259",
    ),
    "gfn-subtb": Method(
        "Subtrajectory balance SubTB(λ) of what came, as if it had been intended: blind to noise.",
        "score memory, replay",
        objectives.SUBTRAJECTORY_BALANCE,
        _BLIND_BALANCE,
        "Madan et al. 2023, Learning GFlowNets from partial episodes, arXiv:2209.12782",
    ),
    "gfn-ls": Method(
        "Trajectory balance with local search: the last letters of designs are rewritten, and the better ones stay.",
        "score memory, replay, designs of the last batch",
        objectives.LOCAL_SEARCH_BALANCE,
        _BLIND_BALANCE,
        "Kim et al. 2023, Local search GFlowNets, arXiv:2310.02710",
    ),
    "gfn-delta-cs": Method(
        "Trajectory balance on a proxy's reward, with letters of good designs masked and refilled by the policy.",
        "score memory, replay, surrogate",
        objectives.PROXY_BALANCE,
        _PROXY_BALANCE,
        "Kim et al. 2024, Improved off-policy RL in biological sequence design, arXiv:2410.04461",
    ),
    "gfn-al": Method(
        "Trajectory balance on a proxy's reward over the policy's own designs, of which the best are paid for.",
        "score memory, replay, surrogate",
        objectives.PROXY_BALANCE,
        {**_PROXY_BALANCE, "search": {"delta": 1.0}},
        "Jain et al. 2022, Biological sequence design with GFlowNets, arXiv:2203.04115",
    ),
    "soft-q": Method(
        "Soft Q-learning over intentions, the actor paid for the entropy of outcomes.",
        "replay, learned channel",
        objectives.SOFT_Q,
        {
            "dynamics": {"learning_rate": 0.1},
            "optimiser": {"learning_rate": 5e-3, "updates": 8, "batch_size": 128},
        },
        "Haarnoja et al. 2017, Reinforcement learning with deep energy-based policies",
    ),
    "sac": Method(
        "Discrete soft actor-critic: twin critics, entropy of intentions at a fixed temperature.",
        "replay",
        objectives.SAC,
        {
            "rl": {"temperature": _TEMPERATURE},
            "optimiser": {"learning_rate": 5e-3, "updates": 8, "batch_size": 128},
        },
        "Haarnoja et al. 2018, Soft actor-critic; Christodoulou 2019, its discrete form",
    ),
    "ppo": Method(
        "Clipped policy gradient with a value baseline, log R at the end and entropy on the way.",
        "fresh trajectories only",
        objectives.PPO,
        {
            "rl": {"temperature": _TEMPERATURE},
            "optimiser": {"learning_rate": 3e-3, "updates": 8, "batch_size": 128},
        },
        "Schulman et al. 2017, Proximal policy optimization algorithms",
    ),
    "mcmc": Method(
        "Metropolis–Hastings chains that mutate one letter; designs repeat the states of the second half.",
        "states of the chains",
        objectives.MCMC,
        {"optimiser": {"batch_size": 128}},
        "Metropolis et al. 1953; Hastings 1970",
    ),
    "mars": Method(
        "Annealed chains whose edits are proposed by a network that learns from improvements.",
        "states of the chains, improvements, learned channel",
        objectives.MARS,
        {
            "chains": {"heat": 3.0},
            "optimiser": {"learning_rate": 1e-3, "updates": 1, "batch_size": 128},
        },
        "Xie et al. 2021, MARS: Markov molecular sampling for multi-objective drug discovery",
    ),
    "genetic": Method(
        "Genetic algorithm: the best paid designs survive, recombine and mutate.",
        "score memory",
        objectives.GENETIC,
        {"optimiser": {"batch_size": 128}},
        "Holland 1975; truncation selection of Mühlenbein and Schlierkamp-Voosen 1993",
    ),
    "adalead": Method(
        "AdaLead: mutants of designs near the best one, followed while a random forest expects no less.",
        "score memory, random forest",
        objectives.ADALEAD,
        {"optimiser": {"batch_size": 128}},
        "Sinai et al. 2020, AdaLead: a simple and robust adaptive greedy search algorithm, arXiv:2010.02141",
    ),
    "kmer-plan": Method(
        "Exact plan, by dynamic programming, on a ridge regression of log R on k-mers: no network.",
        "score memory, k-mer model, learned channel",
        objectives.KMER_PLAN,
        {"optimiser": {"batch_size": 128}},
        "defined in docs/explanation/method.md; the recursion is that of maximum-entropy control (Ziebart 2010)",
    ),
    "random": Method(
        "Uniformly random intentions; nothing is learned.",
        "nothing",
        objectives.RANDOM,
        {},
        "docs/explanation/method.md, Rivals",
    ),
}

# of `stochflow pretrain`; no method of `stochflow train`, so it is not in the list
PRETRAINING = "conditional-kl"
_PRETRAINING = Method(
    "KL to the plans of several tasks with known tables, given a support set of each.",
    "whole tables, known channel",
    objectives.CONDITIONAL_KL,
    {
        "dynamics": {"kind": "known"},
        "optimiser": {"learning_rate": 3e-3, "warmup": 0.05, "clip": 1.0, "updates": 1},
        "budget": {"steps": 1500},
    },
    "docs/explanation/method.md, Context",
)


def method_of(name: str) -> Method:
    """The method of that name, of this package or another, or an error that lists the names there are."""
    if name in METHODS:
        return METHODS[name]
    if name == PRETRAINING:
        return _PRETRAINING
    others = plugins(GROUP, METHODS)
    if name not in others:
        raise ConfigError(f"unknown method '{name}'; choose one of: {', '.join([*METHODS, *others])}")
    return _loaded(others[name])


def method_settings(name: str) -> dict[str, Any]:
    """Config overrides of a method: what chooses its objective, and its own defaults."""
    method = method_of(name)
    objective = method.objective.settings | method.settings.get("objective", {})
    return {**method.settings, "objective": objective}


def register_method(name: str, method: Method) -> None:
    """Make a method known by name in this process, as an entry point of the group `stochflow.methods` does in all."""
    if name in METHODS:
        raise ConfigError(f"there is a method '{name}' already; choose another name")
    METHODS[name] = method


def other_methods() -> Iterator[tuple[str, Method | ConfigError]]:
    """Methods of other packages by name; an error that names the package in the place of one that cannot be used."""
    for name, point in plugins(GROUP, METHODS).items():
        try:
            yield name, _loaded(point)
        except ConfigError as error:
            yield name, error


def check_kind(kind: str) -> None:
    """Refuse a kind of objective that nobody knows, with the ones there are, by a ValueError."""
    if not _records(kind):
        *kinds, last = dict.fromkeys(method.objective.kind for method in METHODS.values())
        raise ValueError(f"input should be {', '.join(map(repr, kinds))} or {last!r}")


def objective_record(kind: str, settings: object) -> ObjectiveRecord:
    """The objective of a kind that settings of `objective`, as attributes, choose."""
    for record in _records(kind):
        if all(getattr(settings, name) == value for name, value in record.variant.items()):
            return record
    raise ValueError(f"no objective of the kind '{kind}' has these settings; leave out those of objective but its kind")


def _records(kind: str) -> list[ObjectiveRecord]:
    """Objectives of a kind. Other packages are asked only for one that is not ours; one that fails is an error then."""
    methods = (*METHODS.values(), _PRETRAINING)
    own = [method.objective for method in methods if method.objective.kind == kind]
    if own:
        return own
    others = [found for _, found in other_methods()]
    found = [method.objective for method in others if isinstance(method, Method) and method.objective.kind == kind]
    broken = next((error for error in others if isinstance(error, ConfigError)), None)
    if not found and broken is not None:
        raise ValueError(str(broken))
    return found


def _loaded(point: EntryPoint) -> Method:
    try:
        found = point.load()
    # whatever the code of another package does wrong, the user hears which package it is
    except Exception as error:
        raise unusable("method", point, f" ({reason_of(error)})") from None
    if not isinstance(found, Method):
        raise unusable("method", point, f": {point.value} is {type(found).__name__}, which is no stochflow Method")
    return found
