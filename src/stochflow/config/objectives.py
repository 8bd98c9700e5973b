"""Objectives as records: where the class is, which settings choose it, and its traits.

Nobody else asks for the name of an objective: what the rest of the package must know of one is a trait here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

# a class, or where it is: "package.module:Class", imported when a run is built
Place = str | Callable[..., Any]


@dataclass(frozen=True)
class ObjectiveRecord:
    """A class of objectives, the settings that choose it, and what the rest of the package must know of it.

    Attributes:
        kind: the setting `objective.kind` that chooses it.
        sequences: the class that trains on sequences; it is called with a `Learner`.
        graphs: True where it trains on graphs too; or the class that does so in its place.
        variant: further settings of `objective` that choose it among those of its kind.
        along_path: balance along a path: `objective.path` and `objective.backward` mean something to it.
        has_residuals: `objective.loss` means something to it.
        weighs_stretches: `objective.decay` means something to it.
        plans: values are planned on the states of the score memory.
        restarts: trajectories may start from random prefixes.
        trains_policy: False where the policy is a list of designs or a table, or is not trained.
        steps_policy: False where the policy is a list of whole designs, which it intends to the end.
        reads_history: its policy may read what was intended and came so far (`context.reads` history).
        edits_designs: it changes letters of whole designs, which have one length.
        one_length: letters mean something by their place, so that designs must have one length.
        orders: it learns which whole designs to order, whose outcomes are not seen on the way (`feedback` none);
            a balance along a path does on the realised one.
        shareable: processes can share its batches.
        pretrains: it trains one sampler for several tasks with known tables, and samples nothing.
        has_temperature: `rl.temperature` weighs the entropy of its policy.
        log_z: what its estimate of log Z tends to: log Z of the "target", less KL(policy ‖ target) for the "policy",
            less the smallest KL there is for the "optimum"; None where that is not known.
    """

    kind: str
    sequences: Place
    graphs: Place | bool = False
    variant: Mapping[str, str] = field(default_factory=dict)
    along_path: bool = False
    has_residuals: bool = False
    weighs_stretches: bool = False
    plans: bool = False
    restarts: bool = False
    trains_policy: bool = True
    steps_policy: bool = True
    reads_history: bool = False
    edits_designs: bool = False
    one_length: bool = False
    orders: bool = False
    shareable: bool = True
    pretrains: bool = False
    has_temperature: bool = False
    log_z: Literal["target", "policy", "optimum"] | None = None

    def place(self, on_graph: bool) -> Place:
        """Where its class is, for sequences or for graphs."""
        return self.graphs if on_graph and not isinstance(self.graphs, bool) else self.sequences

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `objective` that choose it."""
        return {"kind": self.kind, **self.variant}


def load_class(place: Place) -> Callable[..., Any]:
    """The class itself, imported where only its place is known."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


_PACKAGE = "stochflow.objectives"

PLANNED_KL = ObjectiveRecord(
    "kl",
    f"{_PACKAGE}.planned_kl:PlannedKL",
    f"{_PACKAGE}.planned_graph_kl:PlannedGraphKL",
    {"scope": "state", "values": "planned"},
    plans=True,
    orders=True,
    log_z="optimum",
)
BOOTSTRAPPED_KL = ObjectiveRecord(
    "kl",
    f"{_PACKAGE}.divergence:BootstrappedKL",
    True,
    variant={"scope": "state", "values": "bootstrapped"},
    restarts=True,
    log_z="optimum",
)
TRAJECTORY_KL = ObjectiveRecord(
    "kl",
    f"{_PACKAGE}.divergence:TrajectoryKL",
    True,
    variant={"scope": "trajectory"},
    reads_history=True,
    log_z="policy",
)


def _path_balance(
    kind: str, sequences: str, weighs_stretches: bool = False, reads_history: bool = False
) -> ObjectiveRecord:
    """A balance along a path, which trains on sequences and on graphs."""
    return ObjectiveRecord(
        kind,
        f"{_PACKAGE}.{sequences}",
        True,
        along_path=True,
        has_residuals=True,
        weighs_stretches=weighs_stretches,
        reads_history=reads_history,
        orders=True,
        log_z="target",
    )


DETAILED_BALANCE = _path_balance("detailed-balance", "detailed_balance:DetailedBalance")
TRAJECTORY_BALANCE = _path_balance("trajectory-balance", "trajectory_balance:TrajectoryBalance", reads_history=True)
SUBTRAJECTORY_BALANCE = _path_balance(
    "subtrajectory-balance", "subtrajectory_balance:SubtrajectoryBalance", weighs_stretches=True
)
LOCAL_SEARCH_BALANCE = ObjectiveRecord(
    "local-search-balance",
    f"{_PACKAGE}.local_search:LocalSearchBalance",
    along_path=True,
    has_residuals=True,
    edits_designs=True,
    orders=True,
    shareable=False,
    log_z="target",
)
PROXY_BALANCE = ObjectiveRecord(
    "proxy-balance",
    f"{_PACKAGE}.proxy_balance:ProxyBalance",
    along_path=True,
    has_residuals=True,
    edits_designs=True,
    orders=True,
    shareable=False,
)
EXPECTED_BALANCE = ObjectiveRecord(
    "expected-balance",
    f"{_PACKAGE}.expected_balance:ExpectedBalance",
    True,
    has_residuals=True,
    log_z="target",
)
SOFT_Q = ObjectiveRecord("soft-q", f"{_PACKAGE}.baselines.soft_q:SoftQ", shareable=False)
SAC = ObjectiveRecord("sac", f"{_PACKAGE}.baselines.sac:SoftActorCritic", shareable=False, has_temperature=True)
PPO = ObjectiveRecord("ppo", f"{_PACKAGE}.baselines.ppo:PPO", shareable=False, has_temperature=True)
MCMC = ObjectiveRecord(
    "mcmc",
    f"{_PACKAGE}.baselines.mcmc:MetropolisHastings",
    trains_policy=False,
    steps_policy=False,
    edits_designs=True,
    orders=True,
    shareable=False,
)
MARS = replace(MCMC, kind="mars", sequences=f"{_PACKAGE}.baselines.mars:Mars")
GENETIC = replace(MCMC, kind="genetic", sequences=f"{_PACKAGE}.baselines.genetic:Genetic")
ADALEAD = replace(MCMC, kind="adalead", sequences=f"{_PACKAGE}.baselines.adalead:AdaLead")
KMER_PLAN = ObjectiveRecord(
    "kmer-plan", f"{_PACKAGE}.baselines.kmer_plan:KmerPlan", trains_policy=False, one_length=True, shareable=False
)
RANDOM = ObjectiveRecord(
    "random",
    f"{_PACKAGE}.baselines.random_policy:UniformIntentions",
    True,
    trains_policy=False,
    orders=True,
    shareable=False,
)
CONDITIONAL_KL = ObjectiveRecord(
    "conditional-kl",
    "stochflow.training.conditional.pretraining:ConditionalKL",
    shareable=False,
    pretrains=True,
    log_z="optimum",
)
