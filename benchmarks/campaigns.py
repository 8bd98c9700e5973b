"""Simulated campaigns: rounds of orders on landscapes whose truth is hidden behind a table or a formula.

python -m benchmarks.campaigns --plans 4x96 --slips 0 0.05 --seeds 0 1 2        # about an hour on one core
python -m benchmarks.campaigns --tasks gb1 --methods campaign adalead
python -m benchmarks.campaigns --table

All methods begin with the same random plate, order the same number of designs per round under the same noise on whole
orders, see what was made of each order, and measure it once: with the error of one replicate where the table has
replicates, with a normal error of the table's variance where it has variances, exactly where scores are computed. Every
round is a row of `results/campaigns.csv`, judged by the scores without errors: the mean of the ten best realised
designs so far and the best one, the mean of the round, that of as many best designs so far, how many different designs
were realised that count as modes of the task, and CPU seconds of choosing so far. Rows that are there are not run
again. `gb1-fitness` is gb1 as published, enrichment relative to the best, on which CLADE 2.0 and others report; it has
no errors.

`thompson` draws functions of the process that `campaign` uses and orders the best design of each; `mutants` orders
mutants of the best realised designs; the others are the methods of `stochflow train`, with a batch per round.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from benchmarks.sweep import RESULTS
from stochflow.campaigns.candidates import all_designs, enumerable, searched_designs
from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence, join_replicates
from stochflow.campaigns.goals import SCORE, Goal
from stochflow.campaigns.proposal import propose
from stochflow.campaigns.score_model import ScoreModel
from stochflow.config.environment import ConstraintConfig
from stochflow.core.files import write_atomically
from stochflow.environments import registry
from stochflow.environments.channels import noiseless, uniform_slip
from stochflow.environments.registry import FACTORS, make_task
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.wrappers import WrappedTask
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.build import build
from stochflow.experiments.torch_settings import torch_threads

TASKS = [
    *("tfbind8" if factor == "SIX6" else f"tfbind8:{factor}" for factor in FACTORS),
    *("gb1", "dmsc", "mpsa", "smn1", "intron30c", "rna-bind:RNA1,50", "motifs:RUNX1+YY1,50"),
]
REPLICATES, VARIANCES = ("tfbind8", "mpsa"), ("gb1", "dmsc", "smn1", "intron30c")
TRAINED = ["adalead", "genetic", "gfn-al"]
METHODS = ["campaign", "thompson", "mutants", *TRAINED]
KEYS = ["task", "plan", "slip", "method", "seed"]
LOG_ENRICHMENTS = 11.44155  # of gb1, from the smallest to the largest
_BEST, _NUM_PARENTS, _NUM_FINALISTS = 10, 20, 2000
Chooser = Callable[[DesignSpace, Evidence, Tensor, int, int], Tensor]  # … taken, how many, seed → orders


def by_campaign(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, seed: int) -> Tensor:
    """What `stochflow campaign ask` orders."""
    return propose(space, evidence, taken, num, Goal(), seed).orders


def by_thompson(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, seed: int) -> Tensor:
    """The best design of each of `num` functions drawn from the posterior, on the same model and candidates."""
    generator, model = torch.Generator().manual_seed(seed), ScoreModel(space, evidence)
    if enumerable(space):
        tokens = all_designs(space)
        tokens = tokens[model.expected_everywhere(tokens).topk(min(20_000, len(tokens))).indices]
    else:
        tokens = searched_designs(space, evidence, lambda designs: model.predict(designs).at(1.0), generator)
    tokens = without(tokens, taken)
    tokens = tokens[model.predict(tokens).at(1.0).topk(min(_NUM_FINALISTS, len(tokens))).indices]
    covariance = model.resemblance(tokens)
    deviation = model.predict(tokens).deviation
    scale = deviation / covariance.diagonal().clamp(min=1e-9).sqrt()
    factor = torch.linalg.cholesky_ex(covariance + 1e-4 * torch.eye(len(tokens)).double())[0]
    draws = torch.randn(len(tokens), 4 * num, dtype=torch.float64, generator=generator)
    values = model.expected(tokens).unsqueeze(1) + scale.unsqueeze(1) * (factor @ draws)
    return distinct(tokens[values.argmax(dim=0)], tokens, num)


def by_mutation(space: DesignSpace, evidence: Evidence, taken: Tensor, num: int, seed: int) -> Tensor:
    """The twenty best realised designs with one letter on average drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    parents = evidence.tokens[evidence.scores.argsort(descending=True, stable=True)[:_NUM_PARENTS]]
    rows = torch.randint(len(parents), (50 * num,), generator=generator)
    anew = torch.rand(50 * num, space.length, generator=generator) < 1.0 / space.length
    letters = torch.randint(len(space.alphabet), anew.shape, generator=generator)
    found = without(torch.where(anew, letters, parents[rows]), taken)
    return distinct(found, found, num)


CHOOSERS: dict[str, Chooser] = {"campaign": by_campaign, "thompson": by_thompson, "mutants": by_mutation}


def without(rows: Tensor, others: Tensor) -> Tensor:
    """Rows that are not among others, in their order."""
    _, labels = torch.cat([others, rows]).unique(dim=0, return_inverse=True)
    return rows[~torch.isin(labels[len(others) :], labels[: len(others)])]


def distinct(rows: Tensor, more: Tensor, num: int) -> Tensor:
    """The first `num` different rows, filled up with others."""
    frame = pd.DataFrame(torch.cat([rows, more]).numpy()).drop_duplicates().head(num)
    return torch.from_numpy(frame.to_numpy(copy=True))


def campaign(case: dict[str, Any], rounds: int, size: int) -> Iterator[dict[str, Any]]:
    """Rounds of a method that chooses orders by what is known."""
    task = make_task(case["task"])
    measured = with_noise(task, error_of(case["task"]))
    orders, made = first_plate(case, size)
    channel = uniform_slip(task.num_tokens, case["slip"]) if case["slip"] else noiseless(task.num_tokens)
    space = DesignSpace(task.alphabet, task.length, channel, ConstraintConfig())
    generator = torch.Generator().manual_seed(case["seed"])
    taken, realised, values, spent = orders, made, measured.measure(made, generator), 0.0
    yield judged(task, realised, made) | {"round": 1, "cpu_seconds": 0.0}
    for number in range(2, rounds + 1):
        begun = time.process_time()
        evidence = joined(task, realised, values)
        seen = torch.cat([taken, evidence.tokens])
        orders = CHOOSERS[case["method"]](space, evidence, seen, size, case["seed"] + number)
        spent += time.process_time() - begun
        made = space.realised(orders, generator)
        taken, realised = torch.cat([taken, orders]), torch.cat([realised, made])
        values = torch.cat([values, measured.measure(made, generator)])
        yield judged(task, realised, made) | {"round": number, "cpu_seconds": round(spent, 1)}


def trained(case: dict[str, Any], rounds: int, size: int) -> Iterator[dict[str, Any]]:
    """Rounds of a method of `stochflow train`; a design that comes again is paid for again here."""
    experiment, spent = build(resolve_layers([settings(case, case["method"], rounds * size, size)])), 0.0
    task, realised = make_task(case["task"]), torch.empty(0, experiment.environment.max_steps, dtype=torch.int64)
    for number in range(1, rounds + 1):
        begun = time.process_time()
        experiment.trainer.train_step()
        spent += time.process_time() - begun
        made = experiment.trainer.learner.replay.newest(size, "outcomes").long()
        realised = torch.cat([realised, made])
        yield judged(task, realised, made) | {"round": number, "cpu_seconds": round(spent, 1)}


def settings(case: dict[str, Any], method: str, calls: int, size: int) -> dict[str, Any]:
    channel = {"kind": "uniform-slip", "noise": case["slip"]} if case["slip"] else {"kind": "none"}
    layer = {"task": case["task"], "method": method, "seed": case["seed"], "channel": channel}
    errors = {"reward_noise": error_of(case["task"])}
    return layer | errors | {"budget": {"trajectories": calls}, "optimiser": {"batch_size": size}}


def error_of(task: str) -> str:
    """Reward noise of a task: that of its measurements."""
    name = task.partition(":")[0]
    return "replicate" if name in REPLICATES else "gaussian" if name in VARIANCES else "none"


def joined(task: Task, realised: Tensor, values: Tensor) -> Evidence:
    """What a campaign knows after one measurement of each realised design."""
    rows = pd.DataFrame({"measured": task.alphabet.decode(realised), "value": values.double().numpy()})
    return join_replicates(rows.assign(property=SCORE, variance=math.nan), task.alphabet, task.length, [])


class Fitness(WrappedTask):
    """gb1 as published: enrichment, the largest one 1; unmeasured proteins have 0."""

    def __init__(self) -> None:
        super().__init__(make_task("gb1"))
        self.name = "gb1-fitness"
        self.mode_threshold = float(self._fitness(torch.tensor(self.mode_threshold)))

    def score(self, tokens: Tensor) -> Tensor:
        scores = self._task.score(tokens)
        return torch.where(scores > 0.0, self._fitness(scores), 0.0)

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        return self.score(tokens)

    @staticmethod
    def _fitness(scores: Tensor) -> Tensor:
        """From log enrichment in [0, 1] to enrichment relative to the largest."""
        return (LOG_ENRICHMENTS * (scores - 1.0)).exp()


def first_plate(case: dict[str, Any], size: int) -> tuple[Tensor, Tensor]:
    """Orders of the first plate and what was made of them: those that the methods of `stochflow train` begin with."""
    experiment = build(resolve_layers([settings(case, "genetic", 4 * size, size)]))
    experiment.trainer.train_step()
    replay = experiment.trainer.learner.replay
    return replay.newest(size).long(), replay.newest(size, "outcomes").long()


def judged(task: Task, realised: Tensor, made: Tensor) -> dict[str, Any]:
    """Figures of everything that was realised so far and of the latest round."""
    scores = task.score(realised.unique(dim=0)).double()
    return {
        "ten_best": round(float(scores.topk(min(_BEST, len(scores))).values.mean()), 4),
        "best": round(float(scores.max()), 4),
        "mean": round(float(task.score(made).mean()), 4),
        "plate_best": round(float(scores.topk(min(len(made), len(scores))).values.mean()), 4),
        "good": int((scores > task.mode_threshold).sum()),
    }


def table_of(rows: pd.DataFrame, plan: str, slip: float) -> pd.DataFrame:
    """Median over seeds of the ten best at the end, per task and method, and how `campaign` compares.

    `interval` is True where the range of `campaign` over seeds reaches that of the method with the highest median.
    """
    ended = rows[(rows["plan"] == plan) & (rows["slip"] == slip)]
    ended = ended[ended["round"] == ended["round"].max()]
    medians, low, high = (
        ended.pivot_table(index="task", columns="method", values="ten_best", aggfunc=how, sort=False)
        for how in ("median", "min", "max")
    )
    best = medians.idxmax(axis=1)
    reach = {task: high.loc[task, "campaign"] >= low.loc[task, method] for task, method in best.items()}
    worst = medians["campaign"] <= medians.min(axis=1)
    return medians.round(3).assign(best=best, interval=pd.Series(reach), worst=worst)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--plans", nargs="+", default=["4x96", "10x128"])
    parser.add_argument("--slips", nargs="+", type=float, default=[0.0, 0.05])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS / "campaigns.csv")
    parser.add_argument("--table", action="store_true", help="print what the file has, and run nothing")
    given = parser.parse_args()
    registry.TASKS["gb1-fitness"] = Fitness
    if given.table:
        for plan, slip in itertools.product(given.plans, given.slips):
            print(plan, slip, table_of(pd.read_csv(given.results), plan, slip).to_string(), sep="\n")
        return
    cases = [
        dict(zip(KEYS, (task, plan, slip, method, seed), strict=True))
        for seed in given.seeds
        for plan in given.plans
        for slip in given.slips
        for task in given.tasks
        for method in given.methods
    ]
    for case in cases:
        if _has(given.results, case):
            continue
        rounds, size = map(int, case["plan"].split("x"))
        rows = [case | row for row in (trained if case["method"] in TRAINED else campaign)(case, rounds, size)]
        print(rows[-1], flush=True)
        _keep(given.results, rows)


def _has(path: Path, case: dict[str, Any]) -> bool:
    """True where a file has rows of the case."""
    return path.exists() and bool((pd.read_csv(path)[KEYS] == pd.Series(case)).all(axis=1).any())


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a file, sorted."""
    there = [pd.read_csv(path)] if path.exists() else []
    frame = pd.concat([*there, pd.DataFrame(rows)])
    write_atomically(path, frame.sort_values([*KEYS, "round"]).to_csv(index=False))


if __name__ == "__main__":
    with torch_threads(1):
        main()
