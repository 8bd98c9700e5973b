"""Every setting of a run, checked before anything starts: one model per stage, one sentence per field."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from stochflow.config.base import Settings
from stochflow.config.baselines import ChainConfig, PopulationConfig, RLConfig, SearchConfig
from stochflow.config.context import PretrainingConfig, ReadingConfig
from stochflow.config.environment import (
    ChannelConfig,
    ConstraintConfig,
    Feedback,
    LengthConfig,
    MotifConfig,
    RewardConfig,
    TableConfig,
)
from stochflow.config.methods import check_kind, objective_record
from stochflow.config.objectives import ObjectiveRecord
from stochflow.config.oracle import OracleConfig

_BATCHES_KEPT = 64
_DECAY = 0.9
# of a budget; nobody lives to see it, and it is still exact as a float
MOST = 10**15

LossShape = Literal["squared", "linex", "linex-half", "linex-reversed", "shifted-cosh"]


class ModelConfig(Settings):
    """The flow network."""

    body: Literal["kmer", "transformer"] = Field("kmer", description="What reads a prefix: summed k-mers or attention.")
    kmers: list[int] | None = Field(
        None,
        min_length=1,
        description="k-mer lengths embedded along the prefix; null suits them to alphabet and length (kmer).",
    )
    anywhere: list[int] | None = Field(
        None, description="The same with one embedding for all positions; null: long sequences alone have some (kmer)."
    )
    recent: list[int] | None = Field(
        None, description="k-mers that end with the last letter; null: long sequences alone have some (kmer)."
    )
    trunk: Literal["residual", "plain"] = Field(
        "residual", description="Layers behind the embedding: residual with norm and GELU, or a plain ReLU MLP (kmer)."
    )
    width: int = Field(128, ge=1, le=2**14, description="Width of the body.")
    num_layers: int = Field(2, ge=0, le=64, description="Residual layers or attention blocks after the embedding.")
    heads: int = Field(4, ge=1, description="Attention heads; they divide the width (transformer).")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of the products behind the embedding; bfloat16 pays for widths of 512 and more (kmer)."
    )

    @model_validator(mode="after")
    def _buildable(self) -> "ModelConfig":
        if self.kmers is not None and min(self.kmers) != 1:
            raise ValueError("kmers must contain 1 and no smaller number, or single letters would be invisible")
        if min([*(self.anywhere or []), *(self.recent or [])], default=1) < 1:
            raise ValueError("anywhere and recent hold lengths of k-mers; give numbers from one on, or none: []")
        if self.body == "transformer" and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if self.body == "transformer" and self.precision != "float32":
            raise ValueError(f"a transformer computes in float32; leave precision {self.precision} out")
        return self


class DynamicsConfig(Settings):
    """The forward-dynamics model P̂(s'|s,a)."""

    kind: Literal["learned", "known"] = Field("learned", description="Learn P̂, or use the true channel.")
    depends_on: Literal["intention", "position", "state"] = Field(
        "position", description="What P̂ may depend on; each choice includes the ones before it."
    )
    learning_rate: float = Field(0.02, gt=0, description="Adam learning rate, falling linearly to a tenth of it.")
    clip: float = Field(10.0, gt=0, description="Gradient-norm clip.")
    off_policy: bool = Field(True, description="Fit to the replay buffer instead of the fresh batch alone.")
    rounds: int = Field(8, ge=1, le=10**6, description="Off-policy updates per training step.")
    history_rounds: int = Field(
        1, ge=1, le=10**6, description="The same for a P̂ that reads history, which would learn few pairs by heart."
    )
    sample_size: int = Field(512, ge=1, le=2**20, description="Trajectories drawn from the buffer for each update.")


class ObjectiveConfig(Settings):
    """What the policy minimises."""

    kind: str = Field("kl", description="Balance condition, divergence, or a rival.")
    path: Literal["intended", "realised"] = Field(
        "intended", description="Balance what was meant, or, blind to noise, what came (balance along a path)."
    )
    backward: Literal["learned", "uniform", "posterior"] = Field(
        "learned", description="π_B over intentions: a head, 1/K, or πP̂/M (balance along the intended path)."
    )
    loss: LossShape = Field("squared", description="What a residual δ costs (balance).")
    decay: float = Field(_DECAY, gt=0, le=100, description="λ, weight per step of a stretch (subtrajectory balance).")
    scope: Literal["trajectory", "state"] = Field("state", description="KL over whole trajectories or per state.")
    values: Literal["planned", "bootstrapped"] = Field("planned", description="Where the state scope takes V from.")
    gammas: list[float] = Field([0.5], min_length=1, description="γ of the entropy ratio; several are averaged.")
    quantile: float = Field(0.75, gt=0.5, le=1.0, description="q: H_high is the q-quantile, H_low the (1 − q) one.")
    lambda_ratio: float = Field(0.0, ge=0, description="λ_r, weight of −log r_γ.")
    lambda_dynamics: float = Field(0.0, ge=0, description="λ_d, weight of the dynamics loss.")
    lambda_schedule: Literal["constant", "linear"] = Field("linear", description="Keep λ, or lower it to zero.")
    flow_weight: float = Field(0.1, gt=0, description="Weight of the loss that trains log F in the state scope.")
    imitation_weight: float = Field(0.1, ge=0, description="Weight of KL(π of the plan‖π) in planned objectives.")

    @field_validator("kind", mode="after")
    @classmethod
    def _known(cls, kind: str) -> str:
        check_kind(kind)
        return kind

    @model_validator(mode="after")
    def _fitting(self) -> "ObjectiveConfig":
        if not all(0.0 < gamma < 1.0 for gamma in self.gammas):
            raise ValueError("every γ must lie strictly between 0 and 1")
        record = self.record
        if self.loss != "squared" and not record.has_residuals:
            raise ValueError(
                f"loss '{self.loss}' needs residuals, which '{self.kind}' has none of; set loss to squared"
            )
        if self.path == "realised" and not record.along_path:
            raise ValueError(f"kind '{self.kind}' follows no path; set path to intended or choose a balance along one")
        if self.backward != "learned" and (not record.along_path or self.path == "realised"):
            raise ValueError(
                f"backward '{self.backward}' needs a balance along the intended path; set backward to learned"
            )
        if self.decay != _DECAY and not record.weighs_stretches:
            raise ValueError(f"decay belongs to subtrajectory-balance and means nothing to '{self.kind}'; leave it out")
        return self

    @property
    def record(self) -> ObjectiveRecord:
        """The class that these settings choose, and its traits."""
        return objective_record(self.kind, self)


class PlanConfig(Settings):
    """Values planned on the trie of visited prefixes (state scope, planned values) or on k-mers (kmer-plan)."""

    growth: float = Field(1.15, gt=1, description="Plan again when the memory has grown by this factor …")
    every: float = Field(0.04, gt=0, le=1, description="… or after this share of the budget.")
    bonus: float = Field(
        3.0, ge=0, description="Nats by which the behaviour prefers the unpaid, times trajectories per paid design."
    )
    max_entries: int = Field(
        2**21,
        ge=1,
        description="Most prefixes × letters in a plan; beyond it only the best and the newest sequences are planned.",
    )
    rounds: int = Field(32, ge=1, description="Batches have at most this part of the budget, but 64 trajectories.")
    whole: int = Field(2**18, ge=0, description="Most designs of a space whose whole tree is planned on.")
    rows_per_level: int = Field(
        384, ge=1, le=2**20, description="States drawn per depth for one update; 8,192 at most over all depths."
    )
    kmer: int = Field(
        3,
        ge=1,
        le=12,
        description="Letters of the longest k-mer; fewer where there are over 4,096 (kmer-plan).",
    )


class ImaginationConfig(Settings):
    """What is learned from a surrogate of the reward where the plan does not reach (state scope, planned values)."""

    horizon: float = Field(6.0, gt=0, description="Unplanned nats up to which only the plan counts.")
    updates: int = Field(96, ge=0, description="Updates per training step from the surrogate; 0 switches them off.")
    rows: int = Field(256, ge=2, le=2**16, description="Designs of one such update.")
    reverse: float = Field(0.25, ge=0, le=1, description="Share of them by reverse KL on rollouts through P̂.")
    near: float = Field(0.7, ge=0, le=1, description="Share of a batch that is intended near the best paid designs.")
    doubt: float = Field(0.25, ge=0, le=1, description="Share of these that tests surrogates that are not followed.")
    num_chains: int = Field(512, ge=2, le=2**16, description="Metropolis chains on the surrogate.")
    num_repairs: int = Field(256, ge=0, le=2**16, description="Chains that complete prefixes of the policy's draws.")
    moves: int = Field(400, ge=0, description="Moves of every chain after a new fit.")
    restarts: float = Field(0.25, ge=0, le=1, description="Share of chains, the worst, that begin again at parents.")
    shifts: float = Field(0.5, ge=0, le=1, description="Share of moves that shift a stretch by one place.")
    num_parents: int = Field(200, ge=1, description="Best paid designs that lie apart and are varied.")
    niche: float = Field(0.05, ge=0, lt=1, description="How far apart they lie, as a share of the length.")
    spread: float = Field(0.25, ge=0, le=1, description="Share of designs near the best one of a mode …")
    num_modes: int = Field(60, ge=1, description="… of so many modes at most …")
    mode_distance: float = Field(0.25, ge=0, lt=1, description="… that are so far apart, as a share of the length.")
    effective_parents: float = Field(20.0, ge=1, description="Parents in effect, however steep the reward is.")
    mutations: float = Field(1.0, ge=0, description="Letters of a varied design drawn anew besides, on average.")
    candidates: int = Field(32, ge=1, description="Mutants of a mode among which the surrogate chooses one …")
    optimism: float = Field(1.0, ge=0, description="… by its prediction and so many standard deviations.")
    generations: int = Field(20, ge=1, description="Generations of the search for good designs on the surrogate.")


class ExplorationConfig(Settings):
    """How training trajectories differ from the policy's own; never used in evaluation."""

    epsilon: float = Field(0.0, ge=0, le=1, description="Share of uniformly random intentions.")
    temperature: float = Field(1.0, ge=1e-3, description="Intentions are drawn from softmax(logits/temperature).")
    restarts: float = Field(0.0, ge=0, le=1, description="Share of trajectories that start from a random prefix.")


class OptimiserConfig(Settings):
    """The policy's optimiser and the shape of a training step."""

    learning_rate: float = Field(6e-3, gt=0, description="Adam: warm-up, constant for half of the budget, cosine to 0.")
    warmup: float = Field(0.02, ge=0, le=0.5, description="Share of the budget for the warm-up.")
    clip: float = Field(10.0, gt=0, description="Gradient-norm clip.")
    batch_size: int = Field(512, ge=2, le=2**20, description="Trajectories sampled per training step.")
    updates: int = Field(
        24, ge=1, le=10**6, description="Updates per training step; all after the first use remembered data."
    )
    replay_size: int = Field(_BATCHES_KEPT * 512, ge=1, le=2**26, description="Trajectories kept for replay.")


class BudgetConfig(Settings):
    """When to stop; exactly one of the four."""

    trajectories: int | None = Field(None, ge=1, le=MOST, description="Trajectories to sample.")
    steps: int | None = Field(None, ge=1, le=MOST, description="Training steps to take.")
    minutes: float | None = Field(None, gt=0, description="Minutes of training.")
    oracle_calls: int | None = Field(None, ge=1, description="Designs, or noisy measurements, to pay for.")

    @model_validator(mode="after")
    def _exactly_one(self) -> "BudgetConfig":
        limits = (self.trajectories, self.steps, self.minutes, self.oracle_calls)
        if sum(value is not None for value in limits) != 1:
            raise ValueError("give exactly one of trajectories, steps, minutes and oracle_calls")
        return self


class EvaluationConfig(Settings):
    """What is measured, and how often."""

    every: float | None = Field(
        None,
        ge=1e-6,
        le=1,
        description="Evaluate after this share of the budget; null: as often as costs about 2 %, 20 times at most.",
    )
    num_samples: int = Field(1000, ge=1, le=2**20, description="Designs drawn at the end and for the design metrics.")
    curve_samples: int = Field(
        128, ge=1, le=2**20, description="Designs drawn for J at each evaluation in training, where nothing is exact."
    )
    mode_threshold: float | None = Field(None, description="Score above which a design may open a mode; task default.")
    mode_distance: int = Field(
        2, ge=0, le=10**6, description="A new mode differs from all others in more letters than this."
    )
    reference: str | None = Field(None, description="File of known sequences (one per line, CSV or FASTA) for novelty.")


class Config(Settings):
    """A whole run."""

    task: str = Field("tfbind8", description="Task name; `stochflow tasks` lists them.")
    method: str = Field("sgfn-kl", description="Method name; `stochflow methods` lists them.")
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of every random generator.")
    table: TableConfig = Field(default_factory=TableConfig)
    motifs: MotifConfig = Field(default_factory=MotifConfig)
    lengths: LengthConfig = Field(default_factory=LengthConfig)
    reward_noise: str = Field(
        "none", description="Noise of a measurement: none, replicate, gaussian (variances of the table), gaussian:0.1."
    )
    constraints: ConstraintConfig = Field(default_factory=ConstraintConfig)
    oracle: OracleConfig = Field(default_factory=OracleConfig)
    channel: ChannelConfig = Field(default_factory=ChannelConfig)
    feedback: Feedback = Field(
        "step",
        description="See each outcome before the next letter (step), or order whole strings (none; tables, oracles).",
    )
    reward: RewardConfig = Field(default_factory=RewardConfig)
    context: ReadingConfig = Field(default_factory=ReadingConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    dynamics: DynamicsConfig = Field(default_factory=DynamicsConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    plan: PlanConfig = Field(default_factory=PlanConfig)
    imagination: ImaginationConfig = Field(default_factory=ImaginationConfig)
    pretraining: PretrainingConfig = Field(default_factory=PretrainingConfig)
    rl: RLConfig = Field(default_factory=RLConfig)
    chains: ChainConfig = Field(default_factory=ChainConfig)
    population: PopulationConfig = Field(default_factory=PopulationConfig)
    search: SearchConfig = Field(default_factory=SearchConfig)
    exploration: ExplorationConfig = Field(default_factory=ExplorationConfig)
    optimiser: OptimiserConfig = Field(default_factory=OptimiserConfig)
    budget: BudgetConfig = Field(default_factory=lambda: BudgetConfig(trajectories=32_000))
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    checkpoint_every: float = Field(0.1, ge=1e-6, le=1, description="Checkpoint after this share of the budget.")
    device: str = Field("auto", description="auto, cpu, cuda, mps, or any torch device.")
    threads: int = Field(
        1, ge=1, le=1024, description="Threads of torch and BLAS; one is fastest for networks of this size."
    )
    deterministic: bool = Field(False, description="Only operations that give the same numbers every time.")

    @model_validator(mode="after")
    def _coherent(self) -> "Config":
        record, exploration = self.objective.record, self.exploration
        self._check_context(record)
        if exploration.restarts and record.plans:
            raise ValueError(
                "planned values choose their own states; set exploration.restarts to 0 or values to bootstrapped"
            )
        if exploration.restarts and not record.restarts:
            raise ValueError("restarts need the state scope of the KL objective; set exploration.restarts to 0")
        if self.deterministic and self.budget.minutes is not None:
            raise ValueError(
                "a budget in minutes ends where the clock says, never twice at the same step; give --trajectories or "
                "--steps, or leave out --deterministic"
            )
        return self

    def _check_context(self, record: ObjectiveRecord) -> None:
        """Refuse a context that the method cannot read."""
        if self.context.reads != "history":
            return
        if not record.reads_history or self.objective.path == "realised":
            raise ValueError(
                f"'{self.method}' reads no history of intentions; choose sgfn-kl-trajectory or sgfn-tb, or leave "
                "out --context history"
            )
        if self.pretraining.tasks or self.pretraining.source is not None:
            raise ValueError("a pre-trained sampler reads a support set; leave out --context history, or --from")
