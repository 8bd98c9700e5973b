"""The choice of a batch, on landscapes whose truth is known."""

import pytest
import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.campaigns.goals import Goal
from stochflow.campaigns.proposal import Batch, propose
from stochflow.campaigns.score_model import ScoreModel
from stochflow.config.environment import ConstraintConfig
from stochflow.environments.channels import Channel, noiseless, uniform_slip
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")
ARX = make_task("tfbind8:ARX")
NO_NOISE, FREE = noiseless(4), ConstraintConfig()


def measured(num: int, seed: int = 0) -> Evidence:
    tokens = torch.randint(4, (num, 8), generator=torch.Generator().manual_seed(seed)).unique(dim=0)
    return Evidence(tokens, ARX.score(tokens))


def space_of(
    channel: Channel | None = None, constraints: ConstraintConfig | None = None, length: int = 8
) -> DesignSpace:
    return DesignSpace(DNA, length, channel or noiseless(4), constraints or ConstraintConfig())


def strings(tokens: Tensor) -> set[str]:
    return set(DNA.decode(tokens))


def proposed(evidence: Evidence, goal: Goal | None = None, num: int = 48, seed: int = 1) -> Batch:
    return propose(space_of(), evidence, evidence.tokens, num, goal or Goal(), seed)


def test_a_batch_is_far_better_than_random_new_and_different() -> None:
    evidence, batch = measured(192), proposed(measured(192))
    assert len(strings(batch.orders)) == 48
    assert not strings(batch.orders) & strings(evidence.tokens)
    assert ARX.score(batch.orders).mean() > ARX.all_scores.quantile(0.98)


def test_the_same_arguments_give_the_same_batch() -> None:
    first, second = (proposed(measured(32), num=10).orders for _ in range(2))
    assert torch.equal(first, second)


def test_a_batch_differs_more_than_the_best_predictions_alone() -> None:
    evidence = measured(192)
    batch = proposed(evidence).orders
    best = ScoreModel(space_of(), evidence).predict_mean(ARX.all_sequences).topk(len(batch)).indices
    greedy = ARX.all_sequences[best]

    def difference(tokens: Tensor) -> float:
        return float((tokens.unsqueeze(0) != tokens.unsqueeze(1)).double().mean())

    assert difference(batch) > difference(greedy)


def test_intervals_hold_most_scores_of_random_designs() -> None:
    space, evidence = space_of(), measured(300)
    others = measured(2000, seed=5)
    low, high = ScoreModel(space, evidence).predict(others.tokens).interval(0.8)
    covered = float(((low <= others.scores) & (others.scores <= high)).double().mean())
    assert 0.7 < covered < 0.9


def test_the_first_plate_is_random_and_says_so() -> None:
    nothing = Evidence(torch.empty(0, 8, dtype=torch.int64), torch.empty(0, dtype=torch.float64))
    batch = propose(space_of(), nothing, nothing.tokens, 96, Goal(), seed=0)
    assert len(strings(batch.orders)) == 96
    assert all("random" in reason for reason in batch.reasons)


def test_a_target_is_hit_rather_than_passed() -> None:
    evidence = measured(192)
    scores = ARX.score(proposed(evidence, Goal.parse("target:0.6")).orders)
    assert float((scores - 0.6).abs().median()) < 0.1


def test_sampling_draws_more_different_designs_than_maximising() -> None:
    evidence = measured(192)
    sampled, best = proposed(evidence, Goal("sample")), proposed(evidence)
    assert sampled.mean.median() < best.mean.median()
    assert sampled.mean.median() > evidence.scores.median()


def test_designs_that_will_break_a_threshold_are_avoided() -> None:
    evidence = measured(192)
    num_a = (evidence.tokens == 0).double().sum(dim=1)
    known = Evidence(evidence.tokens, evidence.scores, None, {"a": num_a})
    bounded = proposed(known, Goal.parse("maximise", ["a<=1"]))
    assert (bounded.orders == 0).double().sum(dim=1).mean() < (proposed(known).orders == 0).double().sum(dim=1).mean()


def test_under_noise_an_order_is_worth_what_comes_of_it() -> None:
    space, evidence = space_of(uniform_slip(4, 0.2)), measured(300)
    model = ScoreModel(space, evidence)
    exact = model.expected_everywhere(ARX.all_sequences)
    some = torch.arange(0, 4**8, 997)
    drawn = model.expected(ARX.all_sequences[some])
    assert float((drawn - exact[some]).abs().mean()) < 0.05
    assert float(exact.max()) < float(model.predict_mean(ARX.all_sequences).max())


@pytest.mark.parametrize("num_known", [0, 20])
def test_a_whole_space_can_be_asked_for(num_known: int) -> None:
    space = space_of(constraints=ConstraintConfig(max_homopolymer=2), length=3)
    designs = space.draw(400, torch.Generator().manual_seed(0)).unique(dim=0)
    known = designs[:num_known]
    evidence = Evidence(known, (known == 0).double().sum(dim=1))
    batch = propose(space, evidence, known, 60 - num_known, Goal(), seed=0)
    assert len(designs) == space.size == 60
    assert strings(batch.orders) | strings(known) == strings(designs)


def test_long_designs_keep_their_constraints_and_are_better_than_what_was_measured() -> None:
    space = space_of(uniform_slip(4, 0.05), ConstraintConfig(forbid=["GG"]), length=24)
    tokens = space.draw(64, torch.Generator().manual_seed(0))
    evidence = Evidence(tokens, (tokens == 0).double().mean(dim=1) - 5.0)  # scores of any sign
    batch = propose(space, evidence, tokens, 16, Goal(), seed=0)
    assert bool(space.feasible(batch.orders).all())
    assert float((batch.orders == 0).double().mean()) > float(evidence.scores.mean()) + 5.1
    assert bool((batch.low < batch.mean).all())
    assert float(batch.mean.max()) < -4.0
