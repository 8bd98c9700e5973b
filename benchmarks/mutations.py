"""Break the objectives on purpose, one line at a time, and see that the tests notice: `python -m benchmarks.mutations`.

Every mutation is a piece of text that occurs once in a file and what takes its place. The tests of the module run on a
copy of the project; a mutation that they pass has survived, which is a hole in the tests.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pandas as pd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutations.csv"
_COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
# that a test fails is enough; the smallest example of it would take minutes
_NO_SHRINKING = """
from hypothesis import Phase
settings.register_profile("mutations", settings.get_profile("stochflow"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutations")
"""


class Mutation(NamedTuple):
    """What is done to a file of `src/stochflow`, and which tests should mind."""

    what: str
    file: str
    old: str
    new: str
    tests: str


OBJECTIVES = "tests/objectives"
BALANCE, DIVERGENCE, ENTROPY, PLANNED = (
    f"objectives/{name}.py" for name in ("balance", "divergence", "entropy", "planned")
)
TB, DB, WRITTEN = (f"objectives/{name}.py" for name in ("trajectory_balance", "detailed_balance", "written"))
MUTATIONS = [
    # balance along a path
    Mutation("the policy may bend P̂ (ratio)", BALANCE, "self.log_dynamics.detach()", "self.log_dynamics", OBJECTIVES),
    Mutation("P̂ left out of the ratio", BALANCE, "+ self.log_dynamics.detach() ", "", OBJECTIVES),
    Mutation("P̂ with the wrong sign", BALANCE, "+ self.log_dynamics", "- self.log_dynamics", OBJECTIVES),
    Mutation("π_B with the wrong sign", BALANCE, "() - self.log_backward", "() + self.log_backward", OBJECTIVES),
    Mutation("the end forgotten", BALANCE, "self.log_next_flow[:, -1:]", "self.log_flow[:, -1:]", OBJECTIVES),
    Mutation("π_B of the wrong state", BALANCE, "heads.log_backward[:, 1:]", "heads.log_backward[:, :-1]", OBJECTIVES),
    Mutation(
        "π at the outcome, not the intention",
        BALANCE,
        "pick(heads.log_policy, paths.intentions)",
        "pick(heads.log_policy, paths.outcomes)",
        OBJECTIVES,
    ),
    Mutation(
        "π_B at the outcome, not the intention",
        BALANCE,
        "pick(log_backward, paths.intentions)",
        "pick(log_backward, paths.outcomes)",
        OBJECTIVES,
    ),
    Mutation(
        "blind balance at the intention",
        BALANCE,
        "log_forward = pick(heads.log_policy, paths.outcomes)",
        "log_forward = pick(heads.log_policy, paths.intentions)",
        OBJECTIVES,
    ),
    Mutation("posterior without P̂", BALANCE, "log_policy + rows.gather", "log_policy + 0 * rows.gather", OBJECTIVES),
    Mutation("posterior bends P̂", BALANCE, "rows = log_matrices.detach()", "rows = log_matrices", OBJECTIVES),
    Mutation("uniform π_B not normalised", BALANCE, "torch.log_softmax(torch.zeros", "0 * (torch.zeros", OBJECTIVES),
    Mutation("paths nobody may intend count", BALANCE, "valid & meant.all", "valid | meant.all", "tests/constraints"),
    # trajectory balance
    Mutation(
        "TB forgets the root",
        TB,
        "return log_start + torch.where",
        "return torch.where",
        OBJECTIVES,
    ),
    Mutation(
        "TB with R added",
        TB,
        "log_ratio, 0.0).sum(dim=-1) - log_flows[:, -1]",
        "log_ratio, 0.0).sum(dim=-1) + log_flows[:, -1]",
        OBJECTIVES,
    ),
    Mutation(
        "TB counts steps that were none",
        TB,
        "torch.where(valid, log_ratio, 0.0)",
        "log_ratio",
        OBJECTIVES,
    ),
    Mutation(
        "TB starts at the root whatever the path",
        TB,
        "valid.int().argmax(dim=-1, keepdim=True)",
        "valid.int().argmax(dim=-1, keepdim=True) * 0",
        OBJECTIVES,
    ),
    # detailed balance
    Mutation("DB bends P̂", DB, "log_dynamics.detach()", "log_dynamics", OBJECTIVES),
    Mutation(
        "DB adds the next flow",
        DB,
        ".detach() - log_next_flow - log_backward",
        ".detach() + log_next_flow - log_backward",
        OBJECTIVES,
    ),
    Mutation(
        "DB forgets the flow",
        DB,
        "return log_flow + log_forward",
        "return log_forward",
        OBJECTIVES,
    ),
    Mutation(
        "DB forgets π_B",
        DB,
        ".detach() - log_next_flow - log_backward",
        ".detach() - log_next_flow",
        OBJECTIVES,
    ),
    # subtrajectory balance
    Mutation(
        "SubTB adds what is behind",
        "objectives/subtrajectory_balance.py",
        "log_flows - behind",
        "log_flows + behind",
        OBJECTIVES,
    ),
    Mutation(
        "SubTB with equal weights",
        "objectives/subtrajectory_balance.py",
        "device=valid.device) ** lengths",
        "device=valid.device) ** (0 * lengths)",
        OBJECTIVES,
    ),
    Mutation(
        "SubTB counts broken stretches",
        "objectives/subtrajectory_balance.py",
        "real[:, ends] - real[:, starts] == lengths",
        "real[:, ends] - real[:, starts] <= lengths",
        OBJECTIVES,
    ),
    Mutation(
        "SubTB leaves out the longest",
        "objectives/subtrajectory_balance.py",
        "states.shape[1], states.shape[1], offset=1",
        "states.shape[1], states.shape[1], offset=2",
        OBJECTIVES,
    ),
    # expected detailed balance and flows
    Mutation("EDB with P̂ transposed", "objectives/expected_balance.py", ".transpose(-1, -2)", "", OBJECTIVES),
    Mutation(
        "EDB without its leaves",
        "objectives/expected_balance.py",
        '"loss": balance + leaves',
        '"loss": balance',
        OBJECTIVES,
    ),
    Mutation(
        "EDB with the wrong sign",
        "objectives/expected_balance.py",
        "+ log_policy - log_expected",
        "+ log_policy + log_expected",
        OBJECTIVES,
    ),
    Mutation(
        "flows end without the reward",
        "objectives/flows.py",
        "torch.cat([log_flow[:, 1:], log_reward.to(log_flow.dtype).unsqueeze(-1)], dim=1)",
        "torch.cat([log_flow[:, 1:], log_flow[:, -1:]], dim=1)",
        OBJECTIVES,
    ),
    Mutation("targets have a gradient", "objectives/flows.py", "@torch.no_grad()\n", "", OBJECTIVES),
    Mutation(
        "paid leaves are not looked up",
        "objectives/flows.py",
        "torch.where(log_reward.isnan(), flows[:, -1], log_reward)",
        "flows[:, -1]",
        OBJECTIVES,
    ),
    # what a residual costs
    Mutation(
        "linex the other way",
        "objectives/losses.py",
        "2.0 * _excess(-residual),",
        "2.0 * _excess(residual),",
        OBJECTIVES,
    ),
    Mutation("linex-half too small", "objectives/losses.py", "8.0 *", "4.0 *", OBJECTIVES),
    Mutation("no straight line", "objectives/losses.py", "+ _overshoot(exponent) ", "", OBJECTIVES),
    Mutation("masked entries count", "objectives/losses.py", "shape), valid)", "shape), None)", OBJECTIVES),
    # KL over trajectories
    Mutation("KL with R subtracted", DIVERGENCE, "return log_reward - (log", "return -log_reward - (log", OBJECTIVES),
    Mutation("KL counts steps that were none", DIVERGENCE, "(log_marginals * valid)", "log_marginals", OBJECTIVES),
    Mutation("variance without a half", DIVERGENCE, "return 0.5 * (weights", "return (weights", OBJECTIVES),
    Mutation("variance is biased", DIVERGENCE, "size / max(size - 1, 1)", "1.0", OBJECTIVES),
    Mutation("weights carry a gradient", DIVERGENCE, "log_weights.detach()", "log_weights", OBJECTIVES),
    Mutation("residual not centred", DIVERGENCE, "residual - (weights * residual).sum()", "residual", OBJECTIVES),
    Mutation(
        "explored paths unweighted",
        DIVERGENCE,
        "if self._explores():\n            log_weights = ((",
        "if False:\n            log_weights = ((",
        OBJECTIVES,
    ),
    # KL state by state
    Mutation("children's flows learn from π", DIVERGENCE, "log_child_flows.detach()", "log_child_flows", OBJECTIVES),
    Mutation("a state's flow learns from π", DIVERGENCE, "+ log_flow.detach()", "+ log_flow", OBJECTIVES),
    Mutation("state KL forgets the root", DIVERGENCE, " + log_flow.detach().unsqueeze(-1)", "", OBJECTIVES),
    Mutation("state KL reversed", DIVERGENCE, "gap = log_marginals - log", "gap = -log_marginals + log", OBJECTIVES),
    Mutation(
        "marginal balance bends π",
        DIVERGENCE,
        "log_marginals.detach() - log_next",
        "log_marginals - log_next",
        OBJECTIVES,
    ),
    Mutation("marginal balance reversed", DIVERGENCE, "- log_next_flow\n", "+ log_next_flow\n", OBJECTIVES),
    Mutation("leaves learn nothing", DIVERGENCE, "valid) + leaf_loss", "valid)", OBJECTIVES),
    Mutation(
        "penalty with the wrong sign",
        DIVERGENCE,
        "divergence + entropy.penalty",
        "divergence - entropy.penalty",
        OBJECTIVES,
    ),
    # entropy ratio and dynamics loss
    Mutation("h not normalised", ENTROPY, "/ -math.log(num_actions)", "/ -1.0", OBJECTIVES),
    Mutation(
        "mixture the wrong way",
        ENTROPY,
        "gammas * high + (1.0 - gammas) * low",
        "gammas * low + (1.0 - gammas) * high",
        OBJECTIVES,
    ),
    Mutation(
        "0/0 counts as 0",
        ENTROPY,
        "torch.where(positive, mixture, 1.0), 1.0)",
        "torch.where(positive, mixture, 1.0), 0.0)",
        OBJECTIVES,
    ),
    Mutation("dynamics loss without log(1 − ρ)", ENTROPY, "* torch.log1p(-shares)", "* 0 * shares", OBJECTIVES),
    Mutation("dynamics loss with the wrong sign", ENTROPY, "return -(visits", "return (visits", OBJECTIVES),
    Mutation("openness left out", ENTROPY, "(1.0 - openness) *", "", OBJECTIVES),
    Mutation("ρ reaches one", ENTROPY, ".clamp_max(_MAX_SHARE)", "", OBJECTIVES),
    Mutation("λ never fades", ENTROPY, "1.0 - progress if", "1.0 if", OBJECTIVES),
    Mutation(
        "ratio punished, not rewarded",
        ENTROPY,
        "dynamics - config.lambda_ratio",
        "dynamics + config.lambda_ratio",
        OBJECTIVES,
    ),
    Mutation(
        "quantiles exchanged",
        ENTROPY,
        "(config.quantile, 1.0 - config.quantile)",
        "(1.0 - config.quantile, config.quantile)",
        OBJECTIVES,
    ),
    # KL against the plan
    Mutation("planned flows learn nothing", PLANNED, " + config.objective.flow_weight * flow_loss", "", OBJECTIVES),
    Mutation(
        "the stop is not recalled",
        PLANNED,
        'terms["loss"] + RECALL * recall',
        'terms["loss"]',
        "tests/lengths tests/objectives",
    ),
    Mutation(
        "recall reversed",
        PLANNED,
        "(log_planned - log_marginals)",
        "(log_marginals - log_planned)",
        "tests/lengths tests/objectives",
    ),
    Mutation(
        "the plan is never made again",
        PLANNED,
        "self.plan is None or grown or",
        "self.plan is None or False and",
        OBJECTIVES,
    ),
    Mutation(
        "newer nodes take a row of others",
        PLANNED,
        "(self._nodes >= 0) & (self._nodes < len(table))",
        "self._nodes < len(table)",
        OBJECTIVES,
    ),
    Mutation("draws weigh too much", PLANNED, "(total / num_rows)", "total", OBJECTIVES),
    Mutation(
        "paid leaves of another plan unknown",
        PLANNED,
        "torch.where(paid.isnan(), values, paid)",
        "values",
        "tests/objectives tests/lengths tests/planning",
    ),
    # gradients that are written out
    Mutation("TB's own gradient forgets the root", TB, "flow[:, 0] = pull", "flow[:, 0] = 0", OBJECTIVES),
    Mutation("TB's own gradient halved", TB, "pull = (2.0 / len", "pull = (1.0 / len", OBJECTIVES),
    Mutation("TB's own loss adds π_B", TB, "log_dynamics - log_backward", "log_dynamics + log_backward", OBJECTIVES),
    Mutation("DB's own gradient forgets the next state", DB, "flow[:, 1:] -= pull[:, :-1]", "pass", OBJECTIVES),
    Mutation(
        "DB's own loss forgets P̂", DB, "log_forward + log_dynamics - log_next", "log_forward - log_next", OBJECTIVES
    ),
    Mutation("KL's own gradient reversed", DIVERGENCE, "np.repeat(-pull", "np.repeat(pull", OBJECTIVES),
    Mutation(
        "KL's own gradient of a biased variance",
        DIVERGENCE,
        "(len(residual) / max(len(residual) - 1, 1))\n        written",
        "1.0\n        written",
        OBJECTIVES,
    ),
    Mutation("KL's own residual not centred", DIVERGENCE, "residual - weights @ residual", "residual", OBJECTIVES),
    Mutation("softmax without its pull", WRITTEN, "into -= pull[..., None] * policy", "pass", OBJECTIVES),
    Mutation(
        "π_B pulled at the wrong state",
        WRITTEN,
        "self._gradient[:, 1:, self._num_tokens :",
        "self._gradient[:, :-1, self._num_tokens :",
        OBJECTIVES,
    ),
    Mutation("flows pulled the other way", WRITTEN, "-1] += pull", "-1] -= pull", OBJECTIVES),
    Mutation("completions not counted", WRITTEN, "left * np.float32(math.log(num_tokens))", "0 * left", OBJECTIVES),
    Mutation("π_B pulled as π", BALANCE, "pull_backward(-ratio", "pull_backward(ratio", OBJECTIVES),
    # reward
    Mutation(
        "the floor before the power",
        "tasks/base.py",
        "self.exponent(step) * scores.clamp_min(0.0).log()).clamp_min(math.log(self.floor))",
        "self.exponent(step) * scores.clamp_min(self.floor).log())",
        "tests/tasks tests/test_extremes.py",
    ),
    Mutation("β at once", "tasks/base.py", "if step is None or self.ramp == 0:", "if True:", "tests/tasks"),
]


def survives(mutation: Mutation, folder: Path) -> bool:
    """True when the tests pass in a copy of the project that has the mutation."""
    file = folder / "src" / "stochflow" / mutation.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(
            f"'{mutation.old}' occurs {text.count(mutation.old)} times in {mutation.file}; correct the list"
        )
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        near = f"tests/objectives/test_{file.stem}.py"  # most are caught there
        tests = ([near] if (folder / near).is_file() else []) + mutation.tests.split()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    finally:
        file.write_text(text, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {done.returncode} under '{mutation.what}':\n{done.stdout[-2000:]}")
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose file or description has this text")
    parser.add_argument("--check", action="store_true", help="only see that every text occurs once")
    options = parser.parse_args()
    chosen = [one for one in MUTATIONS if options.only in f"{one.file}: {one.what}"]
    if options.check:
        for one in chosen:
            count = (ROOT / "src" / "stochflow" / one.file).read_text(encoding="utf-8").count(one.old)
            if count != 1:
                print(f"{count} times in {one.file}: {one.old}")
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, Path(scratch) / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            else:
                shutil.copy2(source, Path(scratch) / name)
        with (Path(scratch) / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(_NO_SHRINKING)
        for number, one in enumerate(chosen, start=1):
            result = "survived" if survives(one, Path(scratch)) else "caught"
            print(f"{number}/{len(chosen)} {result}: {one.file}: {one.what}", flush=True)
            rows.append({**one._asdict(), "result": result})
    table = pd.DataFrame(rows)
    if not options.only:
        table.drop(columns="tests").to_csv(RESULTS, index=False)
    print(f"{(table['result'] == 'caught').sum()} of {len(table)} caught")


if __name__ == "__main__":
    main()
