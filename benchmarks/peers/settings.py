"""What is compared, with which settings, and which ratios are asked for. No imports: every interpreter reads it."""

from typing import Any

SYSTEMS = ("ours", "gfnx", "torchgfn")
BATCHES = (16, 64, 256)
# timed iterations of one worker, after as many as WARM_UP untimed ones
ITERATIONS = {16: 600, 64: 300, 256: 120}
WARM_UP = 30
# of both, the share that a ground gets: 120 bits take the peers up to a second per iteration
PATIENCE = {"tfbind8": 1.0, "bits": 0.1, "hypergrid": 0.25}

# at least so many times the CPU time of ours, per batch
STEP_TARGETS = {
    "gfnx": {16: 1.0, 64: 1.6, 256: 2.4},
    "torchgfn": {16: 5.0, 64: 4.0, 256: 3.0},
}
TV_TARGET, TV_RATIO = 0.171, 6.0
REGRET_TARGET, REGRET_RATIO = 0.15, 20.0

# what the steps are taken on
GROUNDS = ("tfbind8", "bits", "hypergrid")
# sequences: positions and letters
SHAPES = {"tfbind8": (8, 4), "bits": (15, 256)}
LENGTH, LETTERS = SHAPES["tfbind8"]
NUM_BITS, WORD_BITS = 120, 8
DIMENSIONS, SIDE = 4, 8
GRID_REWARDS = (1e-3, 0.5, 2.0)  # everywhere, in the corners, in their modes
WIDTH = 256  # of all networks: one-hot prefix → 256 → 256 → 256 → heads, about 143,000 weights

# gfnx: the defaults of its own script for TFBind8
LEARNING_RATE = 5e-4
LOG_Z_LEARNING_RATE = 0.05
EXPLORATION_STEPS = 50_000  # ε falls linearly from 1 to 0
GFNX_BATCH = 16
GFNX_CHECKPOINTS = tuple(range(1_000, 30_001, 1_000))

# reward of gfnx: 10·max(score³, 1e-4); a factor says nothing
BETA, FLOOR = 3.0, 1e-4

_SAME_TASK: dict[str, Any] = {
    "task": "tfbind8",
    "channel": {"kind": "none"},
    "reward": {"beta": BETA, "floor": FLOOR},
    "device": "cpu",
}
# an MLP with ReLU on one-hot prefixes, as theirs
_SAME_NETWORK: dict[str, Any] = {"model": {"kmers": [1], "trunk": "plain", "width": WIDTH, "num_layers": 2}}


# on a graph the trunk is residual with norm and GELU; of the same width and depth
_TASKS: dict[str, dict[str, Any]] = {
    "tfbind8": _SAME_TASK | _SAME_NETWORK,
    "bits": _SAME_TASK | _SAME_NETWORK | {"task": f"bits:{NUM_BITS},{WORD_BITS}", "reward": {"beta": BETA}},
    "hypergrid": {
        "task": f"hypergrid:{DIMENSIONS},{SIDE}",
        "channel": {"kind": "none"},
        "reward": {"beta": 1.0},
        "device": "cpu",
        "model": {"width": WIDTH, "num_layers": 2},
    },
}


def step_settings(batch_size: int, ground: str = "tfbind8") -> dict[str, Any]:
    """Ours, trajectory balance without noise: one update per fresh batch, nothing replayed, no channel to learn.

    No warm-up, as the peers have none: policies that stay uniform would make short episodes on a grid.
    """
    return {
        "method": "gfn-tb",
        **_TASKS[ground],
        "dynamics": {"kind": "known"},
        "exploration": {"epsilon": 0.0},
        "optimiser": {"learning_rate": LEARNING_RATE, "warmup": 0.0, "batch_size": batch_size, "updates": 1},
        "budget": {"steps": 10**6},
    }


# runs of ours whose curves are drawn: settings over those of the method
CURVES: dict[str, dict[str, Any]] = {
    # what gfnx does, as far as there are settings for it: ε does not fall here, and log Z is log F of the root
    "gfn-tb": {
        **step_settings(GFNX_BATCH),
        "optimiser": {"learning_rate": LEARNING_RATE, "batch_size": GFNX_BATCH, "updates": 1},
        "exploration": {"epsilon": 0.05},
        "budget": {"steps": 20_000},
    },
    "sgfn-kl": {"method": "sgfn-kl", **_SAME_TASK, "budget": {"trajectories": 12_000}},
    "sgfn-kl-noise": {"method": "sgfn-kl", "channel": {"noise": 0.25}, "budget": {"trajectories": 12_000}},
}
# structure and settings of the reference implementation of Pan et al. 2023: 16 fresh episodes an iteration, one update,
# an MLP on one-hot prefixes, P̂ as a network of state and intention fitted to the same episodes, β(t) rising over 3
# iterations, intentions drawn at temperature 2. Its learning rate of 1e-4 goes with width 2048; at width 256 this one
# came further in 3,000 iterations than 1e-3
REFERENCE: dict[str, Any] = {
    "method": "sgfn-db",
    "channel": {"noise": 0.25},
    **_SAME_NETWORK,
    "reward": {"ramp": 3.0},
    "dynamics": {"depends_on": "state", "off_policy": False, "learning_rate": 1e-3},
    "exploration": {"epsilon": 0.001, "temperature": 2.0},
    "optimiser": {"learning_rate": 5e-3, "batch_size": 16, "updates": 1},
}
# its own budget and a longer one: the learning rate falls with the budget, so neither stands for both
REFERENCE_BUDGETS = (5_000, 20_000)
REFERENCE_CURVES = {f"sgfn-db-{steps}": {**REFERENCE, "budget": {"steps": steps}} for steps in REFERENCE_BUDGETS}
CURVES |= REFERENCE_CURVES
CHECKPOINTS = 40  # exact judgements along a run of ours
