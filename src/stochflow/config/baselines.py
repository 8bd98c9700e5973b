"""Settings of the rivals: reinforcement learning, Markov chains, populations and the searches of GFlowNets."""

from pydantic import Field

from stochflow.config.base import Settings


class RLConfig(Settings):
    """Reinforcement learning (soft-q, sac, ppo)."""

    temperature: float = Field(1.0, gt=0, description="τ, what a nat of the intentions' entropy is worth (sac, ppo).")
    target_entropy: float | None = Field(
        None, gt=0, lt=1, description="Share of log K that τ is steered to keep the entropy at; null fixes τ (sac)."
    )
    polyak: float = Field(0.2, gt=0, le=1, description="Share by which slow critics follow per update (soft-q, sac).")
    value_weight: float = Field(0.5, gt=0, description="Weight of the loss of the critics or the baseline.")
    clip: float = Field(0.2, gt=0, lt=1, description="Probability ratios count within 1 ± this (ppo).")
    gae_decay: float = Field(0.95, ge=0, le=1, description="λ of the generalised advantages (ppo).")
    entropy_bonus: float = Field(0.01, ge=0, description="Weight of the present step's entropy in the loss (ppo).")


class ChainConfig(Settings):
    """Markov chains over sequences; one chain per trajectory of a batch (mcmc, mars)."""

    burn_in: float = Field(0.5, ge=0, lt=1, description="Share of the budget after which states are kept.")
    kept: int = Field(2**16, ge=1, le=2**24, description="Most states kept; beyond that a uniform choice of them.")
    heat: float = Field(1.0, ge=1, description="Temperature at the start, falling linearly to 1 during the burn-in.")
    width: int = Field(64, ge=1, le=2**14, description="Width of the network that proposes edits (mars).")
    uniform_share: float = Field(0.1, gt=0, le=1, description="Share of uniformly random edits (mars).")
    improvements: int = Field(4096, ge=1, le=2**24, description="Latest improvements the proposal learns from (mars).")


class PopulationConfig(Settings):
    """Designs bred from the best ones that were paid for; a batch is a generation (genetic, adalead)."""

    survivors: int = Field(32, ge=1, le=2**24, description="Best paid designs that have children (genetic).")
    threshold: float = Field(
        0.05, ge=0, le=1, description="κ: designs that score at least 1 − κ of the best have children (adalead)."
    )
    crossover: float = Field(
        0.2, ge=0, le=1, description="Probability, at every letter, of going on with the other parent."
    )
    mutations: float = Field(1.0, gt=0, description="Letters of a child that are changed, on average.")
    screened: int = Field(20, ge=1, le=2**16, description="Predictions of the surrogate per intended design (adalead).")
    surrogate: str = Field(
        "forest",
        description="Model: forest, kmer-ridge, gaussian-process, ensemble, or a plugin's (adalead).",
    )
    kept: int = Field(2**16, ge=1, le=2**24, description="Most designs, the best paid ones, listed in the end.")


class SearchConfig(Settings):
    """Searches that draw letters of known designs anew (gfn-ls, gfn-delta-cs, gfn-al)."""

    rounds: int = Field(7, ge=0, le=10**6, description="Rebuilds of a design before a fresh one is drawn (gfn-ls).")
    cut: float = Field(0.5, gt=0, le=1, description="Share of the letters, the last ones, that are rebuilt (gfn-ls).")
    delta: float | None = Field(
        None,
        gt=0,
        le=1,
        description="δ, probability that a letter of a paid design is drawn anew; 1 leaves all to the policy (gfn-al), "
        "null means 0.5 up to 50 letters and 0.05 beyond (gfn-delta-cs).",
    )
    kappa: float = Field(0.1, ge=0, description="κ: a proxy's score is mean + κ·deviation (gfn-delta-cs, gfn-al).")
    paid_share: float = Field(
        0.5, ge=0, le=1, description="Share of the updates on paid trajectories (gfn-delta-cs, gfn-al)."
    )
    candidates: int = Field(
        8, ge=1, le=2**12, description="Free designs per call, of which the best are paid for (gfn-delta-cs, gfn-al)."
    )
    growth: float = Field(
        1.1, gt=1, description="Fit the proxy again when calls have grown by this factor (gfn-delta-cs, gfn-al)."
    )
