"""The learned world: it starts uniform, answers the same both ways, and learns what it was shown."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from stochflow.environments.channels import confusion, positional_slip, uniform_slip
from stochflow.models.dynamics.tabular import DependsOn, DynamicsModel, KnownDynamics, chosen, dynamics_cross_entropy

NUM_TOKENS, LENGTH = 3, 4
KINDS: tuple[DependsOn, ...] = ("intention", "position", "state")
SKEWED = [[0.7, 0.2, 0.1], [0.05, 0.5, 0.45], [0.3, 0.3, 0.4]]


def make_model(depends_on: DependsOn, num_tokens: int = NUM_TOKENS, length: int = LENGTH) -> DynamicsModel:
    model = DynamicsModel(num_tokens, length, depends_on)
    model.initialise(torch.Generator().manual_seed(0))
    return model.double()


def scramble(model: DynamicsModel, generator: torch.Generator) -> None:
    """Every part leaves zero, as after training."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator))


def train(model: DynamicsModel, tokens: Tensor, intentions: Tensor, num_steps: int) -> float:
    """Full-batch cross-entropy training on outcomes `tokens`; returns the last loss."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    valid = torch.ones_like(tokens, dtype=torch.bool)
    for _ in range(num_steps):
        loss = dynamics_cross_entropy(model.log_matrices(tokens), intentions, tokens, valid)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


@pytest.fixture
def tokens() -> Tensor:
    """All sequences in lexicographic order, [81, 4]."""
    return torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=LENGTH)))


@pytest.mark.parametrize("depends_on", KINDS)
def test_the_model_starts_uniform(depends_on: DependsOn, tokens: Tensor) -> None:
    log_matrices = make_model(depends_on).log_matrices(tokens)
    torch.testing.assert_close(log_matrices, torch.full_like(log_matrices, -math.log(NUM_TOKENS)))


@pytest.mark.parametrize("depends_on", KINDS)
def test_rows_are_distributions_over_outcomes(
    depends_on: DependsOn, tokens: Tensor, generator: torch.Generator
) -> None:
    model = make_model(depends_on)
    scramble(model, generator)
    totals = model.log_matrices(tokens).exp().sum(dim=-1)
    assert totals.shape == (len(tokens) if depends_on == "state" else 1, LENGTH, NUM_TOKENS)
    torch.testing.assert_close(totals, torch.ones_like(totals))


@pytest.mark.parametrize("depends_on", KINDS)
def test_one_pass_equals_each_prefix_alone(depends_on: DependsOn, tokens: Tensor, generator: torch.Generator) -> None:
    model = make_model(depends_on)
    scramble(model, generator)
    together = model.log_matrices(tokens).expand(len(tokens), -1, -1, -1)
    for depth in range(LENGTH):
        alone = model.log_matrices_at(tokens, torch.full((len(tokens),), depth))
        torch.testing.assert_close(alone, together[:, depth])


@pytest.mark.parametrize("depends_on", KINDS)
def test_a_shorter_batch_sees_the_same_world(depends_on: DependsOn, tokens: Tensor, generator: torch.Generator) -> None:
    model = make_model(depends_on)
    scramble(model, generator)
    full = model.log_matrices(tokens)
    for time in range(1, LENGTH):
        torch.testing.assert_close(model.log_matrices(tokens[:, :time]), full[:, :time])


@pytest.mark.parametrize(
    ("depends_on", "by_position", "by_state"), [(k, k != "intention", k == "state") for k in KINDS]
)
def test_the_model_depends_on_what_its_name_says(
    depends_on: DependsOn, by_position: bool, by_state: bool, tokens: Tensor, generator: torch.Generator
) -> None:
    model = make_model(depends_on)
    scramble(model, generator)
    log_matrices = model.log_matrices(tokens).expand(len(tokens), -1, -1, -1)
    # sequence 0 at two positions; first and last sequence, which share no letter, at one position
    assert torch.allclose(log_matrices[0, 1], log_matrices[0, 2]) is not by_position
    assert torch.allclose(log_matrices[0, 2], log_matrices[-1, 2]) is not by_state
    # before the first letter all states are one
    torch.testing.assert_close(log_matrices[0, 0], log_matrices[-1, 0])


def test_the_outcome_being_predicted_is_not_in_the_state(tokens: Tensor, generator: torch.Generator) -> None:
    model = make_model("state")
    scramble(model, generator)
    changed = tokens.clone()
    changed[:, 2:] = (changed[:, 2:] + 1) % NUM_TOKENS
    torch.testing.assert_close(model.log_matrices(changed)[:, :3], model.log_matrices(tokens)[:, :3])


def test_known_dynamics_are_the_channel(tokens: Tensor) -> None:
    channel = positional_slip(NUM_TOKENS, [0.0, 0.2, 0.9, 0.5])
    known = KnownDynamics(channel, LENGTH)
    torch.testing.assert_close(known.log_matrices(tokens), channel.log_matrices(LENGTH).float()[None])
    torch.testing.assert_close(known.log_matrices(tokens[:, :2]), channel.log_matrices(LENGTH).float()[None, :2])
    depths = torch.tensor([3, 0, 2])
    torch.testing.assert_close(known.log_matrices_at(tokens[:3], depths), channel.log_matrices(LENGTH).float()[depths])


def test_known_dynamics_have_nothing_to_train_or_to_save() -> None:
    known = KnownDynamics(uniform_slip(NUM_TOKENS, 0.1), LENGTH)
    assert list(known.parameters()) == []
    assert known.state_dict() == {}


def test_chosen_reads_the_row_of_the_intention_and_the_column_of_the_outcome() -> None:
    log_matrices = torch.arange(12.0).reshape(1, 3, 2, 2)
    intentions, outcomes = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([[1, 0, 1], [1, 0, 1]])
    expected = torch.tensor([[1.0, 6.0, 11.0], [3.0, 4.0, 9.0]])
    assert torch.equal(chosen(log_matrices, intentions, outcomes), expected)
    # a table per sequence
    own = torch.cat([log_matrices, 100.0 + log_matrices])
    assert torch.equal(chosen(own, intentions, outcomes), expected + torch.tensor([[0.0], [100.0]]))


def test_cross_entropy_of_hand_worked_steps() -> None:
    log_matrices = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log().expand(1, 2, 2, 2)
    intentions, outcomes = torch.tensor([[0, 1], [1, 1]]), torch.tensor([[0, 0], [1, 1]])
    valid = torch.ones(2, 2, dtype=torch.bool)
    loss = dynamics_cross_entropy(log_matrices, intentions, outcomes, valid)
    # ½, ¼, ¾, ¾
    assert loss.item() == pytest.approx((math.log(2.0) + math.log(4.0) + 2 * math.log(4.0 / 3.0)) / 4)


def test_cross_entropy_ignores_steps_that_never_happened(generator: torch.Generator) -> None:
    log_matrices = torch.randn(2, 3, 2, 2, generator=generator).log_softmax(dim=-1).requires_grad_()
    intentions, outcomes = torch.tensor([[0, 1, 0], [1, 1, 0]]), torch.tensor([[0, 0, 1], [1, 0, 0]])
    valid = torch.tensor([[True, True, False], [True, False, False]])
    loss = dynamics_cross_entropy(log_matrices, intentions, outcomes, valid)
    expected = -(log_matrices[0, 0, 0, 0] + log_matrices[0, 1, 1, 0] + log_matrices[1, 0, 1, 1]) / 3
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, log_matrices)
    assert not gradient[~valid].any()


def test_cross_entropy_of_no_steps_is_zero() -> None:
    nothing = torch.zeros(1, 1, dtype=torch.int64)
    loss = dynamics_cross_entropy(torch.zeros(1, 1, 2, 2), nothing, nothing, torch.zeros(1, 1, dtype=torch.bool))
    assert loss.item() == 0.0


def test_training_recovers_a_confusion_matrix(generator: torch.Generator) -> None:
    channel, num_samples = confusion(SKEWED), 30_000
    intentions = torch.randint(NUM_TOKENS, (num_samples, 1), generator=generator)
    outcomes = channel.sample(intentions[:, 0], 0, generator).unsqueeze(-1)
    model = make_model("intention")
    loss = train(model, outcomes, intentions, num_steps=200)
    learned = model.log_matrices(outcomes[:1])[0, 0].exp().detach()
    # the maximum of the likelihood is the observed frequency
    counts = torch.bincount((intentions * NUM_TOKENS + outcomes).squeeze(-1), minlength=NUM_TOKENS**2)
    frequencies = (counts.reshape(NUM_TOKENS, -1) / counts.reshape(NUM_TOKENS, -1).sum(dim=-1, keepdim=True)).double()
    torch.testing.assert_close(learned, frequencies, atol=1e-3, rtol=0)
    # and that is the truth within Hoeffding's bound for 9 cells of about n/3 samples
    tolerance = math.sqrt(math.log(2 * NUM_TOKENS**2 / 1e-6) / (2 * num_samples / NUM_TOKENS * 0.9))
    torch.testing.assert_close(learned, channel.matrix(0), atol=tolerance, rtol=0)
    assert loss == pytest.approx(channel.entropies().mean().item(), abs=0.02)


def enumerated_world(wanders: Tensor) -> tuple[Tensor, Tensor]:
    """Every (first token, intention) of a two-step binary world once; outcomes [8, 2] and intentions [8, 2].

    The first outcome is drawn evenly whatever was intended; the second is the intention, flipped where `wanders`.
    """
    cases = torch.tensor(list(itertools.product((0, 1), repeat=3)))  # first outcome, first and second intention
    second = torch.where(wanders[cases[:, 0]], 1 - cases[:, 2], cases[:, 2])
    return torch.stack([cases[:, 0], second], dim=1), cases[:, 1:]


def test_only_a_position_model_learns_that_positions_differ() -> None:
    outcomes, intentions = enumerated_world(torch.tensor([False, False]))
    # first step: pure chance, log 2; second step: certain
    losses = {kind: train(make_model(kind, 2, 2), outcomes, intentions, num_steps=150) for kind in KINDS[:2]}
    assert losses["position"] < math.log(2.0) / 2 + 0.01
    # one table for both: half of the steps obey and half are even, so ¾ of them obey
    entropy = 0.75 * math.log(4.0 / 3.0) + 0.25 * math.log(4.0)
    assert losses["intention"] == pytest.approx(entropy, abs=0.01)


def test_only_a_state_model_learns_a_world_that_depends_on_the_state() -> None:
    outcomes, intentions = enumerated_world(torch.tensor([False, True]))
    losses = {kind: train(make_model(kind, 2, 2), outcomes, intentions, num_steps=150) for kind in KINDS}
    assert losses["state"] < math.log(2.0) / 2 + 0.01
    assert losses["position"] == pytest.approx(math.log(2.0), abs=0.01)
    assert losses["intention"] == pytest.approx(math.log(2.0), abs=0.01)


def test_the_same_seed_makes_the_same_model_and_the_global_state_stays() -> None:
    first, second = (DynamicsModel(NUM_TOKENS, LENGTH, "state") for _ in range(2))
    before = torch.get_rng_state()
    for model in (first, second):
        model.initialise(torch.Generator().manual_seed(4))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(mine, other) for mine, other in pairs)


@pytest.mark.parametrize("depends_on", ["intention", "position", "state"])
def test_what_is_known_to_be_impossible_stays_so(depends_on: DependsOn, generator: torch.Generator) -> None:
    possible = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    model = DynamicsModel(3, 2, depends_on, possible=possible)
    model.initialise(generator)
    assert "possible" not in model.state_dict()
    with torch.no_grad():
        model.intention.normal_(generator=generator)
    tokens = torch.randint(3, (4, 2), generator=generator)
    matrices = model.log_matrices(tokens).detach().exp()
    torch.testing.assert_close(matrices.sum(dim=-1), torch.ones(matrices.shape[:-1]))
    assert float(matrices[..., ~possible].max()) < 1e-29
    assert torch.equal(matrices[..., 2, 2], torch.ones(matrices.shape[:-2]))
    at = model.log_matrices_at(tokens, torch.ones(4, dtype=torch.int64)).detach().exp()
    torch.testing.assert_close(at, matrices[:, 1].expand_as(at))


@pytest.mark.parametrize("depends_on", ["intention", "position", "state"])
def test_it_starts_with_how_often_intentions_came(depends_on: DependsOn) -> None:
    model = DynamicsModel(5, 3, depends_on)
    model.initialise(torch.Generator().manual_seed(0))
    assert model.untouched
    model.start(0.8)
    assert not model.untouched
    expected = torch.full((5, 5), 0.05).fill_diagonal_(0.8)
    found = model.log_matrices(torch.zeros(1, 3, dtype=torch.int64)).exp()
    torch.testing.assert_close(found, expected.expand(1, 3, 5, 5), atol=1e-6, rtol=0)


def test_one_letter_has_nothing_to_start_from() -> None:
    model = DynamicsModel(1, 3, "intention")
    model.start(0.5)
    assert bool(model.log_matrices(torch.zeros(1, 3, dtype=torch.int64)).eq(0.0).all())
