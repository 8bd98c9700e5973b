"""What balance conditions along a path share: the terms of a step, the backward policies, and where training ends.

The second half gives every state of a small tree its own parameters and shows every transition to the objective in
every sweep, so that only the condition decides where it comes to rest.
"""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stochflow.config.methods import METHODS, method_settings
from stochflow.core.logspace import log_marginal
from stochflow.core.random import RandomStreams
from stochflow.environments.channels import Channel, confusion, noiseless, uniform_slip
from stochflow.experiments.build import make_objective
from stochflow.experiments.launch import resolve_config
from stochflow.models.base import ChildFlows
from stochflow.models.dynamics.tabular import DynamicsModel
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork, Heads
from stochflow.objectives.base import Objective
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_terms import log_posterior, path_steps
from stochflow.sampling.replay_buffer import ReplayBuffer
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.dynamics_fitter import GradientFitter
from stochflow.training.trainer import Trainer
from stochflow.truth.fixed_points import blind_balance, expected_balance
from stochflow.truth.prefix_tree import infeasible_share, policy_log_marginals, terminal_log_probs, tv_to_target
from tests.objectives.stubs import StubNetwork, sequence_learner

K, LENGTH = 2, 3
NUM_STATES = 2 ** (LENGTH + 1) - 1
# shares between 1/3 and 2/3 everywhere, above the floor of 1/4 that a slip of 1/2 sets
SCORES = torch.tensor([1.0, 2.0, 1.5, 1.0, 2.5, 1.5, 1.0, 2.0], dtype=torch.float64)
LOG_REWARD = SCORES.log()
SLIP = uniform_slip(K, 0.5)
# a proxy's reward has no exact solution
BALANCE_METHODS = [
    name
    for name, method in METHODS.items()
    if method.objective.has_residuals and method.objective.kind != "proxy-balance"
]


class TabularNetwork(StubNetwork):
    """A flow network that generalises nothing: one row of parameters per prefix, shortest first."""

    def __init__(self) -> None:
        super().__init__(K, LENGTH)
        self.logits, self.back_logits = (nn.Parameter(torch.zeros(NUM_STATES, K).double()) for _ in range(2))
        self.log_flow = nn.Parameter(torch.zeros(NUM_STATES).double())

    def at_every_prefix(self, tokens: Tensor) -> Heads:
        rows = [torch.zeros(len(tokens), dtype=torch.int64)]
        for column in tokens.T:
            rows.append(K * rows[-1] + 1 + column)  # the tree as a heap
        return self._at(torch.stack(rows, dim=1))

    @torch.no_grad()
    def children_along(self, outcomes: Tensor, valid: Tensor) -> ChildFlows:
        rows = [torch.zeros(len(outcomes), dtype=torch.int64)]
        for column in outcomes[:, :-1].T:
            rows.append(K * rows[-1] + 1 + column)
        return ChildFlows(self.log_flow[K * torch.stack(rows, dim=1).unsqueeze(-1) + 1 + torch.arange(K)])

    def log_policies(self) -> list[Tensor]:
        log_policy = torch.log_softmax(self.logits.detach(), dim=-1)
        return [log_policy[2**depth - 1 : 2 ** (depth + 1) - 1] for depth in range(LENGTH)]

    def _at(self, rows: Tensor) -> Heads:
        return Heads(
            torch.log_softmax(self.logits[rows], dim=-1),
            torch.log_softmax(self.back_logits[rows], dim=-1),
            self.log_flow[rows],
        )


def make_learner(
    network: FlowNetwork, channel: Channel, dynamics: DynamicsModel | None = None, **objective: Any
) -> SequenceLearner:
    parts = {} if dynamics is None else {"dynamics": dynamics}
    return sequence_learner(network, channel, resolve_config([{"objective": objective}]), SCORES, **parts)


def score(outcomes: Tensor) -> Tensor:
    return SCORES[(outcomes * torch.tensor([4, 2, 1])).sum(dim=-1)]


def every_trajectory(channel: Channel) -> Trajectories:
    """All intentions with all outcomes that they can have."""
    episodes = torch.tensor(list(itertools.product(range(K), repeat=2 * LENGTH)))
    intentions, outcomes = episodes[:, :LENGTH], episodes[:, LENGTH:]
    possible = (channel.matrix(0)[intentions, outcomes] > 0).all(dim=-1)
    intentions, outcomes = intentions[possible], outcomes[possible]
    valid = torch.ones_like(outcomes, dtype=torch.bool)
    return Trajectories(intentions, outcomes, valid, score(outcomes), torch.zeros(outcomes.shape))


def settle(
    channel: Channel, num_sweeps: int = 250, remember: bool = True, **settings: Any
) -> tuple[TabularNetwork, Objective]:
    """The network where an objective comes to rest, every possible transition in every sweep."""
    network = TabularNetwork()
    objective = make_objective(make_learner(network, channel, **settings))
    batch = every_trajectory(channel)
    if remember:
        objective.learner.memory.pay(batch.outcomes, score)
    optimiser = torch.optim.Adam(network.parameters(), fused=True)
    for sweep in range(num_sweeps):
        optimiser.param_groups[0]["lr"] = 0.15 * (1.0 + math.cos(math.pi * sweep / num_sweeps))
        optimiser.zero_grad()
        next(objective.updates(batch, 0, 0.0))["loss"].backward()
        optimiser.step()
    return network, objective


def sampled(network: Any, channel: Channel) -> Tensor:
    """log P_π of all sequences, through the code that judges trained samplers."""
    return terminal_log_probs(policy_log_marginals(network.log_policies(), channel))


def test_the_task_is_feasible_under_slip() -> None:
    assert max(infeasible_share(LOG_REWARD, 0.5, K)) == 0.0


# -- the terms of a step


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    """No two prefixes alike."""
    network = FlowNetwork(K, LENGTH, (1, 2), 8, 1)
    network.initialise(generator)
    with torch.no_grad():
        for head in (network.policy_head, network.backward_head, network.flow_head):
            head.weight.normal_(generator=generator)
    return network.double()


def test_the_posterior_is_bayes_rule() -> None:
    log_policy = torch.tensor([[[0.8, 0.2]]], dtype=torch.float64).log()
    matrix = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    posterior = log_posterior(log_policy, matrix.log()[None, None], torch.tensor([[1]])).exp()
    # 0.8·0.1 = 0.08 against 0.2·0.7 = 0.14
    torch.testing.assert_close(posterior, torch.tensor([[[8 / 22, 14 / 22]]], dtype=torch.float64))


def test_the_posterior_does_not_bend_the_dynamics() -> None:
    log_policy = torch.zeros(1, 1, K, requires_grad=True)
    log_matrices = torch.zeros(1, 1, K, K, requires_grad=True)
    log_posterior(log_policy, log_matrices, torch.tensor([[1]]))[..., 0].sum().backward()
    assert log_policy.grad is not None
    assert log_matrices.grad is None


def test_a_blind_balance_leaves_out_paths_that_nobody_may_intend(network: FlowNetwork) -> None:
    outcomes = torch.tensor([[0, 1, 1], [0, 0, 1]])
    batch = Trajectories(outcomes, outcomes, outcomes >= 0, torch.ones(2).double(), torch.zeros(2, LENGTH))
    learner = make_learner(network, SLIP, kind="trajectory-balance", path="realised")
    allowed = torch.ones(2, LENGTH + 1, K, dtype=torch.bool)
    allowed[0, 1, 1] = False  # the first path has an outcome there that no policy could have meant
    network.mask = SimpleNamespace(all_prefixes=lambda tokens: allowed[:, : tokens.shape[1] + 1])
    valid = path_steps(learner, batch, 0).valid
    assert valid is not None
    assert valid.tolist() == [[False] * LENGTH, [True] * LENGTH]


@pytest.mark.parametrize("intention", range(K))
def test_with_the_posterior_a_step_costs_its_marginal_whatever_was_meant(intention: int, network: FlowNetwork) -> None:
    channel = confusion([[0.9, 0.1], [0.3, 0.7]])
    outcomes = torch.tensor([[1, 0, 1]])
    batch = Trajectories(
        torch.full_like(outcomes, intention), outcomes, outcomes >= 0, torch.ones(1).double(), torch.zeros(1, LENGTH)
    )
    steps = path_steps(make_learner(network, channel, kind="detailed-balance", backward="posterior"), batch, 0)
    log_policy = network.evaluate(AtPrefixes(outcomes)).heads().log_policy[:, :-1]
    marginals = log_marginal(log_policy, channel.log_matrices(LENGTH)).gather(-1, outcomes.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(steps.log_ratio, marginals, atol=1e-6, rtol=0)
    weights = list(network.parameters())
    of_ratio, of_marginal = (
        torch.autograd.grad(value.sum(), weights, allow_unused=True) for value in (steps.log_ratio, marginals)
    )
    for first, second in zip(of_ratio, of_marginal, strict=True):
        assert (first is None) == (second is None)
        if first is not None:
            torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


def test_the_uniform_backward_policy_is_one_over_k(network: FlowNetwork) -> None:
    learner = make_learner(network, SLIP, kind="trajectory-balance", backward="uniform")
    steps = path_steps(learner, every_trajectory(SLIP), 0)
    torch.testing.assert_close(steps.log_backward, torch.full_like(steps.log_backward, -math.log(K)))


def test_the_realised_path_takes_the_outcome_for_the_intention(network: FlowNetwork) -> None:
    batch = every_trajectory(SLIP)
    steps = path_steps(make_learner(network, SLIP, kind="detailed-balance", path="realised"), batch, 0)
    log_policy = network.evaluate(AtPrefixes(batch.outcomes)).heads().log_policy[:, :-1]
    came = log_policy.gather(-1, batch.outcomes.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(steps.log_ratio, came)
    assert not torch.allclose(came, log_policy.gather(-1, batch.intentions.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(steps.log_flows[:, -1], batch.scores.log(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", BALANCE_METHODS)
def test_no_gradient_reaches_a_learned_dynamics_model(
    method: str, network: FlowNetwork, generator: torch.Generator
) -> None:
    dynamics = DynamicsModel(K, LENGTH, "state")
    dynamics.initialise(generator)
    learner = make_learner(network, SLIP, dynamics, **method_settings(method)["objective"])
    next(make_objective(learner).updates(every_trajectory(SLIP), 0, 0.0))["loss"].backward()
    assert all(parameter.grad is None for parameter in dynamics.parameters())
    assert network.policy_head.weight.grad is not None
    assert float(network.policy_head.weight.grad.abs().max()) > 0


def test_an_unpaid_sibling_counts_what_the_flow_head_learned_of_leaves(network: FlowNetwork) -> None:
    batch = every_trajectory(SLIP)
    one = Trajectories(*(column[:1] for column in vars(batch).values() if column is not None))
    losses = []
    for remembered in (False, True):
        objective = make_objective(make_learner(network, SLIP, kind="expected-balance"))
        if remembered:
            objective.learner.memory.pay(batch.outcomes, score)
        losses.append(next(objective.updates(one, 0, 0.0)))
    assert losses[0]["balance_loss"].item() != losses[1]["balance_loss"].item()
    assert losses[0]["leaf_loss"].item() == losses[1]["leaf_loss"].item()
    leaf = network.evaluate(AtPrefixes(one.outcomes)).heads().log_flow[0, -1].item()
    assert losses[0]["leaf_loss"].item() == pytest.approx((leaf - math.log(one.scores.item())) ** 2, rel=1e-5)


# -- where each condition comes to rest

ALONG_A_PATH = ["detailed-balance", "trajectory-balance", "subtrajectory-balance"]


@pytest.mark.parametrize("settings", [{"path": "realised"}, {"backward": "posterior"}])
@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_without_noise_balance_along_a_path_samples_the_reward(kind: str, settings: dict[str, str]) -> None:
    network, objective = settle(noiseless(K), kind=kind, **settings)
    assert tv_to_target(sampled(network, noiseless(K)), LOG_REWARD) < 1e-3
    assert objective.log_z() == pytest.approx(float(LOG_REWARD.logsumexp(dim=0)), abs=1e-3)


def test_without_noise_a_learned_backward_policy_hides_what_is_missing() -> None:
    # only a = b is ever seen, so π_B(b|s') may be anything: the condition is met, and not by the target alone
    network, objective = settle(noiseless(K), kind="detailed-balance")
    loss = next(objective.updates(every_trajectory(noiseless(K)), 0, 0.0))["loss"].item()
    assert loss < 1e-6
    assert tv_to_target(sampled(network, noiseless(K)), LOG_REWARD) > 0.1


def test_without_noise_expected_balance_samples_the_reward() -> None:
    network, objective = settle(noiseless(K), kind="expected-balance")
    assert tv_to_target(sampled(network, noiseless(K)), LOG_REWARD) < 1e-3
    assert objective.log_z() == pytest.approx(float(LOG_REWARD.logsumexp(dim=0)), abs=1e-3)


@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_blind_balance_under_noise_believes_in_the_target_and_samples_a_blur_of_it(kind: str) -> None:
    network, objective = settle(SLIP, kind=kind, path="realised")
    exact = blind_balance(LOG_REWARD, SLIP, LENGTH)
    for found, expected in zip(network.log_policies(), exact.log_policies, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    assert objective.log_z() == pytest.approx(exact.log_z, abs=1e-3)
    assert tv_to_target(sampled(network, SLIP), exact.log_probs) < 1e-3
    assert tv_to_target(sampled(network, SLIP), LOG_REWARD) > 0.05


@pytest.mark.parametrize("channel", [SLIP, confusion([[0.9, 0.1], [0.4, 0.6]])])
def test_expected_balance_under_noise_settles_at_its_own_solution_which_is_not_the_reward(channel: Channel) -> None:
    network, objective = settle(channel, kind="expected-balance")
    exact = expected_balance(LOG_REWARD, channel, LENGTH)
    for found, expected in zip(network.log_policies(), exact.log_policies, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    assert objective.log_z() == pytest.approx(exact.log_z, abs=1e-3)
    assert tv_to_target(sampled(network, channel), exact.log_probs) < 1e-3
    assert tv_to_target(sampled(network, channel), LOG_REWARD) > 0.05


def test_expected_balance_needs_no_memory_where_the_flow_head_knows_the_leaves() -> None:
    network, _ = settle(SLIP, remember=False, kind="expected-balance")
    assert tv_to_target(sampled(network, SLIP), expected_balance(LOG_REWARD, SLIP, LENGTH).log_probs) < 1e-3


@pytest.mark.parametrize("backward", ["learned", "posterior"])
@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_balance_of_intentions_samples_a_feasible_reward_through_the_noise(kind: str, backward: str) -> None:
    network, objective = settle(SLIP, kind=kind, backward=backward)
    assert tv_to_target(sampled(network, SLIP), LOG_REWARD) < 5e-3
    assert objective.log_z() == pytest.approx(float(LOG_REWARD.logsumexp(dim=0)), abs=1e-2)


@pytest.mark.parametrize("loss", ["linex", "linex-half", "linex-reversed", "shifted-cosh"])
def test_every_loss_has_the_same_balance(loss: str) -> None:
    network, _ = settle(SLIP, kind="detailed-balance", backward="posterior", loss=loss)
    assert tv_to_target(sampled(network, SLIP), LOG_REWARD) < 1e-3


def test_a_uniform_backward_policy_loses_log_k_per_step_without_noise_and_the_target_with_it() -> None:
    network, objective = settle(noiseless(K), kind="detailed-balance", backward="uniform")
    assert tv_to_target(sampled(network, noiseless(K)), LOG_REWARD) < 1e-3
    log_z = float(LOG_REWARD.logsumexp(dim=0))
    assert objective.log_z() == pytest.approx(log_z - LENGTH * math.log(K), abs=1e-3)
    network, _ = settle(SLIP, kind="detailed-balance", backward="uniform")
    assert tv_to_target(sampled(network, SLIP), LOG_REWARD) > 0.05


# -- a short training of every method, network and channel learned


@pytest.mark.parametrize("method", BALANCE_METHODS)
def test_a_short_training_leads_to_the_exact_solution_of_its_condition(method: str) -> None:
    settings = {
        "method": method,
        "seed": 1,
        "budget": {"steps": 40},
        "optimiser": {"batch_size": 128, "updates": 4, "learning_rate": 0.02},
        "dynamics": {"rounds": 2, "sample_size": 256},
    }
    config = resolve_config([settings])
    generators = RandomStreams(config.seed)
    network = FlowNetwork(K, LENGTH, (1, 2, 3), 32, 1)
    network.initialise(generators["init"])
    parts = {
        "dynamics": DynamicsModel(K, LENGTH, "intention"),
        "replay": ReplayBuffer(config.optimiser.replay_size, LENGTH),
        "generators": generators,
    }
    learner = sequence_learner(network, SLIP, config, SCORES, **parts)
    objective = make_objective(learner)
    fitter = GradientFitter(learner, config.dynamics, idle=not objective.reads_dynamics)
    trainer = Trainer(learner, objective, fitter)
    while not trainer.finished:
        trainer.train_step()
    log_probs = terminal_log_probs(policy_log_marginals(network.tree_log_policies(), SLIP))
    targets = {
        "the reward": LOG_REWARD,
        "the blur": blind_balance(LOG_REWARD, SLIP, LENGTH).log_probs,
        "the double blur": expected_balance(LOG_REWARD, SLIP, LENGTH).log_probs,
    }
    distances = {name: tv_to_target(log_probs, target) for name, target in targets.items()}
    own = "the reward" if method.startswith("sgfn") else "the double blur" if method == "edb" else "the blur"
    assert distances[own] < 0.02, distances
    assert min(distances, key=lambda name: distances[name]) == own, distances
