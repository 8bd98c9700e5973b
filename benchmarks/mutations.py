"""Break the objectives on purpose, one line at a time, and see that the tests notice: `python -m benchmarks.mutations`.

Every mutation is a piece of text that occurs once in a file and what takes its place. The tests of the module run on a
copy of the project; a mutation that they pass has survived, which is a hole in the tests. First the same tests must
pass on the copy as it is. What was tried before on the same text is not tried again, so that the command goes on where
it was stopped.
"""

import argparse
import compileall
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# imported once: the tests run in forks of this process, which must know neither stochflow nor plugins of pytest yet
import pandas as pd
import pytest
import scipy.sparse  # noqa: F401  # for the forks alone
import torch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutations.csv"
_COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
_CONTROL = "as it is"
_SLOWEST = "test_check_values.py"
_LIMIT = 600.0  # seconds; a mutation may make a loop endless
# that a test fails is enough; the smallest example of it would take minutes
_NO_SHRINKING = """
from hypothesis import Phase
settings.register_profile("mutations", settings.get_profile("stochflow"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutations")
"""


Key = tuple[str, ...]


class Mutation(NamedTuple):
    """What is done to a file of `src/stochflow`, and which tests should mind."""

    what: str
    file: str
    old: str
    new: str
    tests: str


PLANNING = "tests/objectives/planning"
OBJECTIVES, MODELS = "tests/objectives", "tests/models tests/models/engine tests/models/dynamics"
GRAPHS = f"{OBJECTIVES} tests/experiments/test_graph_runs.py"
BALANCE, DIVERGENCE, ENTROPY, PLANNED = (
    f"objectives/{name}.py" for name in ("path_terms", "divergence", "entropy", "planned_kl")
)
FLOWS, LEARNERS, GRAPH_PLANNED = (f"objectives/{name}.py" for name in ("state_flows", "learners", "planned_graph_kl"))
NETWORK, GRAPH_NETWORK, REWARDS = "models/flow_network.py", "models/graph_network.py", "environments/rewards.py"
STATES, CHAINS = "objectives/planning/plan_states.py", "objectives/planning/surrogate_chains.py"
PREFIXES = "objectives/planning/plan_prefixes.py"
IMAGINED = "objectives/imagined_kl.py"
LAYERS, EVALUATION = "models/engine/layers.py", "models/engine/prefix_evaluation.py"
WORLD = "environments/graphs/environment.py"
ENGINE = "tests/models/engine"
ENVIRONMENTS = (
    "tests/environments/graphs tests/environments/sequences/test_environment.py tests/sampling "
    "tests/experiments/test_graph_runs.py"
)
TB, DB, GRADIENTS = (f"objectives/{name}.py" for name in ("trajectory_balance", "detailed_balance", "path_gradients"))
FITTER, FITTING = "training/dynamics_fitter.py", "tests/training/test_dynamics_fitter.py"
FEATURES = "tests/forecasting/test_planted_effects.py"
LEAVES, SURROGATES = "objectives/planning/leaf_model.py", "tests/surrogates"
MUTATIONS = [
    # settings of the fitting of P̂
    Mutation("no clip (tables of P̂)", FITTER, "TableAdam(model, config.clip)", "TableAdam(model, 1e6)", FITTING),
    Mutation("no clip (P̂)", FITTER, "FlatAdam(parameters, config.clip)", "FlatAdam(parameters, 1e6)", FITTING),
    Mutation(
        "sample_size ignored (tables of P̂)",
        FITTER,
        "sample_codes(rounds, config.sample_size,",
        "sample_codes(rounds, 512,",
        FITTING,
    ),
    Mutation("sample_size ignored (P̂)", FITTER, "sample(self._config.sample_size,", "sample(512,", FITTING),
    # features in forecasts
    Mutation(
        "past features × 0",
        "forecasting/data/encoder.py",
        "            past,\n            phases - phases[0],",
        "            0.0 * past,\n            phases - phases[0],",
        FEATURES,
    ),
    Mutation(
        "no past feature is ever used",
        "forecasting/model/past_selection.py",
        "if float(saved.mean()) > max(",
        "if float(saved.mean()) > 9.0 + max(",
        FEATURES,
    ),
    Mutation(
        "events are lagged",
        "forecasting/model/linear_ensemble.py",
        "/ self.spread - world.features @ effects",
        "/ self.spread - 0.0 * (world.features @ effects)",
        FEATURES,
    ),
    Mutation(
        "events have no effect",
        "forecasting/model/paths.py",
        "values[:, window:] + start.effects",
        "values[:, window:]",
        FEATURES,
    ),
    Mutation(
        "the first values of a past feature are forgotten",
        "forecasting/model/past_model.py",
        "before[..., None] < 0, 0.0,",
        "before[..., None] < 5, 0.0,",
        "tests/forecasting/model/test_past_model.py",
    ),
    Mutation("recent k-mers learn nothing", EVALUATION, "[rows.recent for rows in", "[[] for rows in", MODELS),
    Mutation(
        "recent k-mers stay", EVALUATION, "for column in rows.dropped:", "for column in rows.dropped[:0]:", MODELS
    ),
    Mutation("the worse model of a leaf", LEAVES, "product / square)", "1.0 - product / square)", OBJECTIVES),
    Mutation("the worst foresight", "surrogates/ensemble.py", "_errors.argmin()", "_errors.argmax()", SURROGATES),
    Mutation("nothing held out", "surrogates/network_ensemble.py", "% NUM_MEMBERS !=", "% 1 != 1 +", SURROGATES),
    Mutation("one generation alone", CHAINS, "int(generations.max()) if num else 0", "0", "tests/objectives/planning"),
    Mutation(
        "gates without a penalty", "surrogates/position_pairs.py", "return _SPARSITY *", "return 0.0 *", SURROGATES
    ),
    Mutation(
        "pairs that go on", "surrogates/position_pairs.py", "begins_anew = True", "begins_anew = False", SURROGATES
    ),
    Mutation("pairs both ways", "surrogates/position_pairs.py", '["gates"].triu(1)) *', '["gates"]) *', SURROGATES),
    # balance along a path
    Mutation("the policy may bend P̂ (ratio)", BALANCE, "self.log_dynamics.detach()", "self.log_dynamics", OBJECTIVES),
    Mutation("P̂ left out of the ratio", BALANCE, "+ self.log_dynamics.detach() ", "", OBJECTIVES),
    Mutation("P̂ with the wrong sign", BALANCE, "+ self.log_dynamics", "- self.log_dynamics", OBJECTIVES),
    Mutation("π_B with the wrong sign", BALANCE, "() - self.log_backward", "() + self.log_backward", OBJECTIVES),
    Mutation("the end forgotten", BALANCE, "self.log_next_flow[:, -1:]", "self.log_flow[:, -1:]", OBJECTIVES),
    Mutation("π_B of the wrong state", NETWORK, "heads.log_backward[:, 1:]", "heads.log_backward[:, :-1]", OBJECTIVES),
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
        "Steps(log_flow, pick(heads.log_policy, paths.outcomes)",
        "Steps(log_flow, pick(heads.log_policy, paths.intentions)",
        OBJECTIVES,
    ),
    Mutation(
        "posterior without P̂", BALANCE, "log_policy + log_likelihood(", "log_policy + 0 * log_likelihood(", OBJECTIVES
    ),
    Mutation(
        "posterior bends P̂",
        BALANCE,
        "log_likelihood(log_matrices.detach(),",
        "log_likelihood(log_matrices,",
        OBJECTIVES,
    ),
    Mutation(
        "uniform π_B not normalised",
        NETWORK,
        "torch.log_softmax(torch.zeros_like(log_policy), dim=-1)",
        "torch.zeros_like(log_policy)",
        OBJECTIVES,
    ),
    Mutation(
        "paths nobody may intend count",
        BALANCE,
        "valid & meant.all",
        "valid | meant.all",
        "tests/environments/sequences/constraints",
    ),
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
        "valid.int().argmax(dim=-1)",
        "valid.int().argmax(dim=-1) * 0",
        OBJECTIVES,
    ),
    Mutation(
        "TB forgets the root where every step is real",
        TB,
        "return log_flows[:, 0] + log_ratio",
        "return log_ratio",
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
        FLOWS,
        "torch.cat([log_flow[:, 1:], log_reward], dim=1)",
        "torch.cat([log_flow[:, 1:], log_flow[:, -1:]], dim=1)",
        OBJECTIVES,
    ),
    Mutation(
        "targets have a gradient",
        "models/flow_network.py",
        "@torch.no_grad()\n    def children_along",
        "def children_along",
        "tests/objectives/test_state_flows.py",
    ),
    Mutation(
        "paid leaves are not looked up",
        LEARNERS,
        "torch.where(log_rewards.isnan(), flows[:, -1], log_rewards)",
        "flows[:, -1]",
        OBJECTIVES,
    ),
    # what a residual costs
    Mutation(
        "linex the other way",
        "objectives/regression_losses.py",
        "2.0 * _excess(-residual),",
        "2.0 * _excess(residual),",
        OBJECTIVES,
    ),
    Mutation("linex-half too small", "objectives/regression_losses.py", "8.0 *", "4.0 *", OBJECTIVES),
    Mutation("no straight line", "objectives/regression_losses.py", "+ _overshoot(exponent) ", "", OBJECTIVES),
    Mutation("masked entries count", "objectives/regression_losses.py", "shape), valid)", "shape), None)", OBJECTIVES),
    # KL over trajectories
    Mutation("KL with R subtracted", DIVERGENCE, "return log_reward - (log", "return -log_reward - (log", OBJECTIVES),
    Mutation("KL counts steps that were none", DIVERGENCE, "(log_marginals * valid)", "log_marginals", OBJECTIVES),
    Mutation("variance without a half", DIVERGENCE, "return 0.5 * (weights", "return (weights", OBJECTIVES),
    Mutation("variance is biased", DIVERGENCE, ".sum() * size / max(size - 1, 1)", ".sum()", OBJECTIVES),
    Mutation("weights carry a gradient", DIVERGENCE, "log_weights.detach()", "log_weights", OBJECTIVES),
    Mutation("residual not centred", DIVERGENCE, "residual - (weights * residual).sum()", "residual", OBJECTIVES),
    Mutation(
        "explored paths unweighted",
        DIVERGENCE,
        "if self.reads_behaviour:\n            log_weights = ((",
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
    Mutation("h not normalised", ENTROPY, "found / math.log(num_actions)", "found / 1.0", OBJECTIVES),
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
        "weights, (config.quantile, 1.0 - config.quantile)",
        "weights, (1.0 - config.quantile, config.quantile)",
        OBJECTIVES,
    ),
    Mutation("quantile learns as a whole", ENTROPY, "+= part * quantile_gradient", "+= quantile_gradient", OBJECTIVES),
    Mutation("low quantile learns backwards", ENTROPY, "(-rest / mixture)", "(rest / mixture)", OBJECTIVES),
    Mutation("ρ learns beyond its limit", ENTROPY, "gammas * ratios < _MAX_SHARE", "gammas > 0.0", OBJECTIVES),
    Mutation("openness half learned", ENTROPY, "1.0 - 2.0 * entropies", "1.0 - entropies", OBJECTIVES),
    Mutation("entropy learns as a sum", GRADIENTS, " + (log_scale * entropies)[..., None]", "", OBJECTIVES),
    # KL against the plan
    Mutation(
        "planned flows learn nothing",
        PLANNED,
        'config.flow_weight * flow_loss + config.imitation_weight * imitation_loss\n        terms = {"loss": loss',
        'config.imitation_weight * imitation_loss\n        terms = {"loss": loss',
        OBJECTIVES,
    ),
    Mutation(
        "planned entropy learns nothing", PLANNED, "            if weighs:\n", "            if False:\n", OBJECTIVES
    ),
    Mutation(
        "planned flows learn by half", GRADIENTS, "(2.0 * share) * coefficient", "share * coefficient", OBJECTIVES
    ),
    Mutation(
        "every planned state weighs alike",
        GRADIENTS,
        "weights[:, None] * self._policy * slopes",
        "self._policy * slopes",
        OBJECTIVES,
    ),
    Mutation(
        "planned KL pulled through P̂ transposed", GRADIENTS, "matrix.T, out=slopes", "matrix, out=slopes", OBJECTIVES
    ),
    Mutation(
        "planned softmax without its share",
        GRADIENTS,
        "coefficient - self._policy * shift",
        "coefficient",
        OBJECTIVES,
    ),
    Mutation(
        "the plan is not imitated (autograd)",
        PLANNED,
        'flow_loss + config.imitation_weight * imitation_loss\n        terms = {"loss": loss',
        'flow_loss\n        terms = {"loss": loss',
        "tests/environments/sequences/variable_length tests/objectives",
    ),
    Mutation(
        "the bonus never grows",
        "objectives/planning/novelty.py",
        "bonus * min(max(num_sampled / max(num_paid, 1), 1.0), MAX_REPEATS)",
        "bonus",
        "tests/objectives/planning",
    ),
    Mutation(
        "imitation reversed",
        GRADIENTS,
        "(self._policy - planned)",
        "(planned - self._policy)",
        OBJECTIVES,
    ),
    Mutation(
        "the plan is never made again",
        PLANNED,
        "not self._num_planned or grown or",
        "not self._num_planned or False and",
        OBJECTIVES,
    ),
    Mutation(
        "newer nodes take a row of others",
        PREFIXES,
        "(self._nodes >= 0) & (self._nodes < len(table))",
        "self._nodes < len(table)",
        OBJECTIVES,
    ),
    Mutation("draws weigh too much", STATES, "(total / num_rows)", "total", OBJECTIVES),
    Mutation("what is drawn twice counts once", STATES, "counts * weights[0]", "0 * counts + weights[0]", OBJECTIVES),
    Mutation(
        "paid leaves of another plan unknown",
        PLANNED,
        "torch.where(paid.isnan(), values, paid)",
        "values",
        "tests/objectives tests/environments/sequences/variable_length tests/objectives/planning tests/sampling",
    ),
    Mutation("no bonus for what was never paid for", PLANNED, "values - bonus * known", "values", OBJECTIVES),
    # closed-form gradients
    Mutation("TB's own gradient forgets the root", TB, "flow[..., 0] = coefficient", "flow[..., 0] = 0", OBJECTIVES),
    Mutation("TB's own gradient halved", TB, "coefficient = (2.0 / size", "coefficient = (1.0 / size", OBJECTIVES),
    Mutation("TB's own loss adds π_B", TB, "log_dynamics - log_backward", "log_dynamics + log_backward", OBJECTIVES),
    Mutation(
        "DB's own gradient forgets the next state", DB, "flow[..., 1:] -= coefficient[..., :-1]", "pass", OBJECTIVES
    ),
    Mutation(
        "DB's own loss forgets P̂", DB, "log_forward + log_dynamics - log_next", "log_forward - log_next", OBJECTIVES
    ),
    Mutation("KL's own gradient reversed", DIVERGENCE, "np.repeat(-coefficient", "np.repeat(coefficient", OBJECTIVES),
    Mutation(
        "KL's own gradient of a biased variance",
        DIVERGENCE,
        "weights * centred * np.asarray(size / max(size - 1, 1), residual.dtype)",
        "weights * centred",
        OBJECTIVES,
    ),
    Mutation(
        "KL's own residual not centred",
        DIVERGENCE,
        "residual - np.add.reduce(weights * residual)",
        "residual",
        OBJECTIVES,
    ),
    Mutation("softmax without its share", GRADIENTS, "into -= coefficient[..., None] * policy", "pass", OBJECTIVES),
    Mutation(
        "π_B learns at the wrong state",
        GRADIENTS,
        "self.gradient[:, 1:, self.num_tokens :",
        "self.gradient[:, :-1, self.num_tokens :",
        OBJECTIVES,
    ),
    Mutation("flows learn the other way", GRADIENTS, "-1] += coefficient", "-1] -= coefficient", OBJECTIVES),
    Mutation(
        "completions not counted",
        GRADIENTS,
        "np.arange(length, 0, -1, dtype=np.float32) * np.float32(math.log(num_tokens))",
        "np.zeros(length, np.float32)",
        OBJECTIVES,
    ),
    Mutation(
        "heads without a bias",
        "models/engine/prefix_evaluation.py",
        "np.add(outputs, bias, out=outputs)",
        "pass",
        MODELS,
    ),
    Mutation(
        "siblings forget each other on their way up",
        "models/engine/prefix_layout.py",
        "np.add.reduce(siblings, axis=1)",
        "siblings[:, 0]",
        f"{MODELS} tests/sampling/test_rollout.py",
    ),
    Mutation(
        "low products in the gradient alone",
        "models/engine/layers.py",
        "return torch.add(bias, torch.mm(inputs.to(columns.dtype), columns), out=out)",
        "return torch.addmm(bias, inputs, columns.to(inputs.dtype), out=out)",
        f"{MODELS} tests/training/test_precision.py",
    ),
    Mutation(
        "a gradient of half of the product",
        "models/engine/layers.py",
        "into.add_(torch.mm(left.to(precision), right.to(precision)))",
        "into.add_(torch.mm(left.to(precision), right.to(precision)), alpha=0.5)",
        f"{MODELS} tests/training/test_precision.py",
    ),
    Mutation("π_B learns as π", BALANCE, "add_grad_backward(-ratio", "add_grad_backward(ratio", OBJECTIVES),
    # on graphs
    Mutation(
        "objects of a graph end without the reward",
        FLOWS,
        "torch.where(ended, log_reward, log_flow)",
        "log_flow",
        GRAPHS,
    ),
    Mutation("p_B of one intention only", GRAPH_NETWORK, "into.logsumexp(dim=-1)", "into[..., 0]", GRAPHS),
    Mutation("π_B of another parent", GRAPH_NETWORK, "[after, places]", "[after, 0 * places]", GRAPHS),
    Mutation(
        "flows on a graph without the plan's visits",
        GRAPH_PLANNED,
        "plan.advances[states] + safe_log(visits[states])",
        "plan.advances[states]",
        GRAPHS,
    ),
    Mutation("the plan is not imitated", GRAPH_PLANNED, " + config.imitation_weight * imitation_loss", "", GRAPHS),
    Mutation("objects' flows learn nothing", GRAPH_PLANNED, " + self._object_loss(step)\n", "\n", GRAPHS),
    Mutation("π_B on a graph learns nothing", GRAPH_PLANNED, "(flow_loss + backward_loss)", "flow_loss", GRAPHS),
    Mutation(
        "no bonus for objects never paid for",
        GRAPH_PLANNED,
        "log_reward - bonus * paid",
        "log_reward",
        GRAPHS,
    ),
    # P̂ from counts
    Mutation(
        "transitions of another position",
        "models/dynamics/tabular.py",
        "np.arange(0, num_codes, num_tokens**2) + intentions",
        "intentions",
        f"{MODELS} tests/sampling/test_replay_buffer.py",
    ),
    Mutation(
        "draws are counted together",
        "models/dynamics/tabular.py",
        "shifted = codes + tables",
        "shifted = codes + 0 * tables",
        MODELS,
    ),
    Mutation(
        "P̂ of a table that sees no position",
        "models/dynamics/tabular_fit.py",
        "tables[:, :1] + tables[:, 1:] if",
        "tables[:, :1] + 0 * tables[:, 1:] if",
        MODELS,
    ),
    Mutation(
        "the clip of P̂ is never asked for",
        "models/dynamics/tabular_fit.py",
        "if norm > self._clip - _NORM_MARGIN:",
        "if norm > 1e9 * self._clip:",
        MODELS,
    ),
    Mutation(
        "codes of an earlier buffer",
        "sampling/replay_buffer.py",
        "[: len(self)].all())\n        self._encode_all()\n",
        "[: len(self)].all())\n",
        "tests/sampling/test_replay_buffer.py",
    ),
    # the engine
    Mutation(
        "GELU in the place of its slope",
        LAYERS,
        "gelu_backward_into(grad, inner, inner_grad)",
        "inner_grad.copy_(grad)",
        MODELS,
    ),
    Mutation(
        "no residual in the forward pass",
        LAYERS,
        "torch.add(hidden, gelu_into(inner, following), out=following)",
        "gelu_into(inner, following)",
        MODELS,
    ),
    Mutation("biases learn nothing", LAYERS, "into_bias.addmv_(inner_grad.t(), ones)", "pass", MODELS),
    Mutation("the norm's shift learns its scale", LAYERS, "into[1].add_(shift)", "into[1].add_(scale)", MODELS),
    Mutation(
        "plain layers without their slope",
        LAYERS,
        "grad = relu_backward_into(grad, made[number + 1], grad)",
        "pass",
        MODELS,
    ),
    Mutation(
        "an evaluation is current for ever",
        EVALUATION,
        "return self._version == self._space.version.number",
        "return True",
        ENGINE,
    ),
    Mutation(
        "another batch counts as the one that was drawn",
        EVALUATION,
        "return tree.has_rows(tokens)",
        "return True",
        ENGINE,
    ),
    Mutation(
        "half of the heads' gradient",
        EVALUATION,
        "weights, biases = np.dot(heads.T, features), np.add.reduce(heads, axis=0)",
        "weights, biases = 0.5 * np.dot(heads.T, features), np.add.reduce(heads, axis=0)",
        MODELS,
    ),
    Mutation(
        "masked intentions learn",
        EVALUATION,
        "grad = grad.masked_fill(~ctx.allowed, 0.0)",
        "pass",
        "tests/models tests/models/engine tests/environments/sequences/constraints",
    ),
    Mutation(
        "prefixes of other parents",
        EVALUATION,
        "before = before if parents is None else before.take(parents, axis=0)",
        "before = before if parents is None else before.take(0 * parents, axis=0)",
        MODELS,
    ),
    Mutation(
        "buffers that are in use are used again",
        "models/engine/buffers.py",
        "return self._user is None or self._user() is None",
        "return True",
        MODELS,
    ),
    Mutation(
        "heads of the last update",
        "models/engine/buffers.py",
        "self.head_arrays[0][first:last] = self.heads[2 * number].detach().numpy()",
        "pass",
        MODELS,
    ),
    Mutation(
        "single prefixes without their start",
        EVALUATION,
        "sums += space.start.detach().numpy()",
        "pass",
        f"{MODELS} {OBJECTIVES}",
    ),
    Mutation(
        "the start of single prefixes learns nothing",
        EVALUATION,
        "into[1].add_(sums.sum(dim=0))",
        "pass",
        f"{MODELS} {OBJECTIVES}",
    ),
    Mutation(
        "what was sampled is kept for ever",
        NETWORK,
        "sampled, self._sampled = self._sampled, None",
        "sampled = self._sampled",
        ENGINE,
    ),
    Mutation(
        "completions of another length",
        NETWORK,
        "log_completions = self.steps_left(tokens) * math.log(self.num_tokens)",
        "log_completions = self.steps_left(tokens) * 0.0",
        f"{MODELS} {OBJECTIVES}",
    ),
    Mutation(
        "π_B of the state before",
        NETWORK,
        "heads.log_backward[:, 1:] if where.backward",
        "heads.log_backward[:, :-1] if where.backward",
        f"{MODELS} {OBJECTIVES}",
    ),
    Mutation(
        "autograd in the place of a closed form adds nothing",
        "models/evaluation.py",
        "torch.autograd.backward(self._raw, torch.from_numpy(grad).to(self._raw))",
        "pass",
        OBJECTIVES,
    ),
    # environments
    Mutation(
        "a channel that never slips",
        "environments/sequences/environment.py",
        "return intentions if self._uniform is None else",
        "return intentions if True else",
        ENVIRONMENTS,
    ),
    Mutation(
        "the channel of another position",
        "environments/sequences/environment.py",
        "self._channel.realised(intentions, time, self._uniform[time])",
        "self._channel.realised(intentions, 0, self._uniform[time])",
        ENVIRONMENTS,
    ),
    Mutation(
        "an episode goes on after its end",
        WORLD,
        "self.going = (self._nodes < graph.num_states).numpy()",
        "pass",
        ENVIRONMENTS,
    ),
    Mutation(
        "ended episodes move",
        WORLD,
        "torch.where(going, graph.children[states, outcomes], self._nodes)",
        "graph.children[states, outcomes]",
        ENVIRONMENTS,
    ),
    Mutation(
        "outcomes of the first intention",
        WORLD,
        "rows = self._graph.cumulative[states, intentions]",
        "rows = self._graph.cumulative[states, 0 * intentions]",
        ENVIRONMENTS,
    ),
    Mutation("objects are numbered as nodes", WORLD, "[:, -1] - self.graph.num_states", "[:, -1]", ENVIRONMENTS),
    Mutation(
        "steps after the end count as taken",
        "sampling/rollout.py",
        "valid[:, time] = episodes.going",
        "pass",
        ENVIRONMENTS,
    ),
    Mutation(
        "behaviour of steps after the end",
        "sampling/rollout.py",
        "chosen.masked_fill_(~taken, 0.0)",
        "pass",
        ENVIRONMENTS,
    ),
    Mutation(
        "the budget pays for known objects",
        "sampling/object_memory.py",
        "new & torch.zeros_like(new)",
        "torch.ones_like(new) & torch.zeros_like(new)",
        ENVIRONMENTS,
    ),
    Mutation(
        "a cycle is a graph",
        "environments/graphs/world.py",
        "depths[node] = max((depths[parent] + 1 for parent in parents[node]), default=0)",
        "depths[node] = min((depths[parent] + 1 for parent in parents[node]), default=0)",
        ENVIRONMENTS,
    ),
    Mutation(
        "probabilities need not sum to one",
        "environments/graphs/world.py",
        "((totals - 1.0).abs() > _TOLERANCE)",
        "((totals - 1.0).abs() > 1e9)",
        ENVIRONMENTS,
    ),
    Mutation(
        "the truth of another noise",
        "truth/truth.py",
        '"regret": kl - self.attainable.min_kl,\n',
        '"regret": kl,\n',
        "tests/truth tests/evaluation tests/experiments",
    ),
    # beyond enumeration
    Mutation(
        "regret by J without the floor of the noise",
        "truth/truth.py",
        '"regret": kl - self.attainable.min_kl, "regret_se"',
        '"regret": kl, "regret_se"',
        "tests/truth tests/evaluation tests/experiments/test_motif_runs.py",
    ),
    Mutation("reverse KL uphill", IMAGINED, "(-gains / num, choice)", "(gains / num, choice)", OBJECTIVES),
    Mutation(
        "what was, not what is to come",
        IMAGINED,
        "np.cumsum(log_marginals[:, ::-1], axis=1)[:, ::-1]",
        "np.cumsum(log_marginals, axis=1)",
        OBJECTIVES,
    ),
    Mutation(
        "reverse KL does not wait", IMAGINED, 'if cross_entropy <= terms["imagined_entropy"]', "if 0.0 <=", OBJECTIVES
    ),
    Mutation("what was ruled out stays out", IMAGINED, "_STRAYING = 0.01", "_STRAYING = 0.0", OBJECTIVES),
    Mutation("forward KL uphill", IMAGINED, "type(-1.0 / len", "type(1.0 / len", OBJECTIVES),
    Mutation("given letters are learned", IMAGINED, ") >= given.numpy()", ") >= 0 * given.numpy()", OBJECTIVES),
    Mutation("repairs change given letters", CHAINS, "given + (torch.rand", "0 * given + (torch.rand", OBJECTIVES),
    Mutation("good chains begin again", CHAINS, "argsort(descending=True)[: int(", "argsort()[: int(", OBJECTIVES),
    Mutation(
        "what is believed of unpaid leaves is left out",
        PLANNED,
        "values[~paid] = self._frontier(leaves[~paid], step)",
        "values[~paid] = 0.0",
        OBJECTIVES,
    ),
    Mutation("chains walk downhill", CHAINS, "< there - here", "< here - there", OBJECTIVES),
    Mutation("parents may be alike", CHAINS, "squeeze(0) > niche", "squeeze(0) >= 0", OBJECTIVES),
    Mutation("changes to near letters count as symmetric", CHAINS, "masked_fill(shift, 0.0)", "mul(0.0)", PLANNING),
    Mutation("modes share the parents of the best", CHAINS, "int(self._config.spread * num)", "0", PLANNING),
    Mutation(
        "updates go on while held-out chains become less probable",
        "objectives/imagined_kl.py",
        "if held_out > lowest + _RISE:",
        "if held_out > 1e9:",
        OBJECTIVES,
    ),
    Mutation(
        "the surrogate where the plan knows all",
        "objectives/planning/plan.py",
        "1.0 - float(level.sum())",
        "float(level.sum())",
        OBJECTIVES,
    ),
    # reward
    Mutation(
        "the floor before the power",
        REWARDS,
        "np.maximum(self.exponent(step) * logarithms, math.log(self.floor))",
        "self.exponent(step) * np.maximum(logarithms, math.log(self.floor))",
        "tests/environments tests/training/test_extremes.py",
    ),
    Mutation(
        "β at once",
        REWARDS,
        "if step is None or self.ramp == 0:",
        "if True:",
        "tests/environments",
    ),
]


class FirstFailure:
    """Remembers the first test that failed."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


class Outcome(NamedTuple):
    """How pytest ended in a copy of the project, and the first test that failed."""

    code: int
    failed: str


def copy_project(folder: Path) -> None:
    """Everything that the tests of a module need, compiled."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        else:
            shutil.copy2(source, folder / name)
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(_NO_SHRINKING)
    compileall.compile_dir(folder / "src", quiet=1)


def test_files(mutation: Mutation, folder: Path) -> list[str]:
    """The tests of a mutation: those of the module first, where most are caught, and the slowest last."""
    files = [file for name in mutation.tests.split() for file in _files_in(folder / name)]
    near = f"test_{Path(mutation.file).stem}.py"
    files.sort(key=lambda file: (file.name == _SLOWEST, file.name != near))
    return [str(file.relative_to(folder)) for file in files]


def _files_in(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("test_*.py"))


def outcome_of(files: Iterable[str], folder: Path) -> Outcome:
    """Run tests in a fork of this process, which has imported what takes long."""
    context = multiprocessing.get_context("fork")
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    process = context.Process(target=_run_tests, args=(list(files), folder, answer))
    process.start()
    process.join(_LIMIT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return Outcome(1, f"no end within {_LIMIT:.0f} s")
    if not answer.is_file():
        raise SystemExit(f"the tests died with {process.exitcode}; see what they said in {folder}")
    return Outcome(*json.loads(answer.read_text(encoding="utf-8")))


def _run_tests(files: list[str], folder: Path, answer: Path) -> None:
    os.chdir(folder)
    sys.dont_write_bytecode = True  # a file that changes twice in a second would be taken for the one before
    sys.path.insert(0, str(folder))
    first = FirstFailure()
    with (folder / "output.txt").open("w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files], plugins=[first])
        found = Path(sys.modules["stochflow"].__file__ or "")
    if folder not in found.parents:
        raise SystemExit(f"the tests ran on {found}, not on the copy in {folder}")
    answer.write_text(json.dumps([int(code), first.name]), encoding="utf-8")


def mutated(mutation: Mutation, folder: Path) -> Outcome:
    """What the tests say in a copy of the project that has the mutation."""
    file = folder / "src" / "stochflow" / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        found = outcome_of(test_files(mutation, folder), folder)
    finally:
        file.write_text(text, encoding="utf-8")
    if found.code not in (0, 1) or (found.code and not found.failed):  # no test failed: not even Python could read it
        said = (folder / "output.txt").read_text(encoding="utf-8")
        raise SystemExit(f"pytest ended with {found.code} under '{mutation.what}':\n{said[-2000:]}")
    return found


def misplaced(mutations: Iterable[Mutation]) -> list[str]:
    """Those whose text does not occur exactly once, which have to be corrected."""
    found = []
    for one in mutations:
        count = _source(one).count(one.old)
        if count != 1 or one.old == one.new:
            found.append(f"{count} times in {one.file}: {one.old}")
    return found


def _source(mutation: Mutation) -> str:
    return (ROOT / "src" / "stochflow" / mutation.file).read_text(encoding="utf-8")


def _digest(texts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def _key(mutation: Mutation) -> Key:
    """What a result holds for: the mutation and the file that it changes."""
    return (mutation.what, mutation.file, mutation.old, mutation.new, _digest([_source(mutation).encode()]))


def _control_keys(files: Iterable[str]) -> dict[str, Key]:
    """The same for tests of the code as it is, by their file."""
    source = [path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py"))]
    return {file: (_CONTROL, file, "", "", _digest([*source, (ROOT / file).read_bytes()])) for file in files}


class Results:
    """Results of earlier and present trials, kept in a file in the order of the list."""

    _COLUMNS = ("what", "file", "old", "new", "source", "result", "caught_by")

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = pd.read_csv(path, dtype=str, keep_default_na=False) if path.is_file() else pd.DataFrame()
        self._rows: dict[Key, tuple[str, str]] = {
            tuple(row[:5]): (row[5], row[6]) for row in rows.itertuples(index=False)
        }

    def caught(self, mutation: Mutation) -> bool:
        return self._rows.get(_key(mutation), ("", ""))[0] == "caught"

    def uncontrolled(self, files: Iterable[str]) -> list[str]:
        """Tests that were not seen to pass without a mutation."""
        return [file for file, key in _control_keys(files).items() if key not in self._rows]

    def control(self, files: Iterable[str]) -> None:
        """These tests pass without a mutation."""
        keys = _control_keys(files)
        self._rows = {key: row for key, row in self._rows.items() if key[:2] not in {(_CONTROL, file) for file in keys}}
        self._rows |= dict.fromkeys(keys.values(), ("passed", ""))

    def add(self, mutation: Mutation, found: Outcome) -> str:
        result = "caught" if found.code else "survived"
        self._rows[_key(mutation)] = (result, found.failed)
        return result

    def save(self) -> None:
        controls = sorted(key for key in self._rows if key[0] == _CONTROL)
        keys = [*controls, *(key for one in MUTATIONS if (key := _key(one)) in self._rows)]
        rows = [(*key, *self._rows[key]) for key in keys]
        pd.DataFrame(rows, columns=list(self._COLUMNS)).to_csv(self._path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose file or description has this text")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after this time")
    parser.add_argument("--again", action="store_true", help="also those that were caught before")
    options = parser.parse_args()
    if wrong := misplaced(MUTATIONS):
        raise SystemExit("\n".join(wrong))
    started, results = time.monotonic(), Results(RESULTS)
    torch.set_num_threads(1)
    chosen = [one for one in MUTATIONS if options.only in f"{one.file}: {one.what}"]
    left = [one for one in chosen if options.again or not results.caught(one)]
    if left:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch).resolve()
            copy_project(folder)
            files = results.uncontrolled(dict.fromkeys(file for one in left for file in test_files(one, folder)))
            if files:
                control = outcome_of(files, folder)
                if control.code:
                    raise SystemExit(f"without any mutation {control.failed or 'pytest'} fails; nothing can be said")
                results.control(files)
                results.save()
                print(f"without any mutation {len(files)} files of tests pass", flush=True)
            for number, one in enumerate(left, start=1):
                if time.monotonic() - started > 60.0 * options.minutes:
                    break
                found = mutated(one, folder)
                result = results.add(one, found)
                results.save()
                print(f"{number}/{len(left)} {result}: {one.file}: {one.what} ({found.failed})", flush=True)
    print(f"{sum(map(results.caught, MUTATIONS))} of {len(MUTATIONS)} caught")


if __name__ == "__main__":
    main()
