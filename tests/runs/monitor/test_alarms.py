"""What is called stalled, diverged or collapsed, and what is not."""

from typing import Any

import pytest

from stochflow.runs.monitor.alarms import alarms
from stochflow.runs.monitor.history import history_of
from tests.runs.monitor.conftest import MakeRecords, config_of

FALLING = [0.6 * 0.96**step for step in range(100)]


def kinds(records: list[dict[str, Any]], method: str = "sgfn-kl", **settings: Any) -> list[str]:
    return [finding.kind for finding in alarms(history_of(config_of(method, **settings), records))]


def test_a_run_that_learns_raises_no_alarm(make_records: MakeRecords) -> None:
    assert kinds(make_records(regret=FALLING, entropy_gap=0.1)) == []
    assert kinds(make_records(start=None, intended_spread=0.4, batch_score=[0.1 + 0.01 * n for n in range(100)])) == []


def test_a_regret_that_stands_at_its_start_has_stalled(make_records: MakeRecords) -> None:
    records = make_records(regret=0.59, entropy_gap=-0.4)
    assert kinds(records) == ["stalled"]
    assert kinds(records[:30]) == []  # too early to say
    assert kinds(make_records(regret=0.5)) == []  # it has moved
    assert kinds(make_records(regret=[0.59 if step < 50 else 0.3 for step in range(100)])) == []  # late, but it learned
    assert kinds(make_records(start=0.01, regret=0.01)) == []  # there was nothing to learn
    assert kinds(make_records(regret=0.59, loss=None)) == []  # nothing was trained


def test_scores_that_stand_have_stalled_where_the_truth_is_not_known(make_records: MakeRecords) -> None:
    noise = [0.2 + 0.01 * (step % 3) for step in range(100)]
    standing = {"start": None, "intended_spread": 0.75, "batch_score": noise}
    assert kinds(make_records(**standing)) == ["stalled"]
    assert kinds(make_records(**standing), reward={"beta": 1e-3}) == []  # the target itself is that of chance
    rising = [score + 0.001 * step for step, score in enumerate(noise)]
    assert kinds(make_records(**standing | {"batch_score": rising})) == []
    moved = [0.75 if step < 50 else 0.5 for step in range(100)]
    assert kinds(make_records(**standing | {"intended_spread": moved})) == []  # not better, but not chance


def test_a_j_that_stands_at_its_start_has_stalled_where_the_truth_is_not_known(make_records: MakeRecords) -> None:
    # 128 draws with a standard error of 0.2 come from log R with a variance of 5: there are nats to be gained
    scores = [0.2 + 0.001 * step for step in range(100)]
    standing = {"start": None, "start_j": 4.0, "j_se": 0.2, "intended_spread": 0.7, "batch_score": scores}
    records = make_records(**standing, j=4.3)
    assert kinds(records) == ["stalled"]
    assert kinds(records[:30]) == []  # too early to say
    assert "J is 4.3 nats" in alarms(history_of(config_of(), records))[0].seen
    assert kinds(make_records(**standing, j=5.0)) == []  # it has risen
    assert kinds(make_records(**standing, j=3.0)) == []  # worse, but not standing
    assert kinds(make_records(**standing, j=[4.3 if step < 90 else 6.0 for step in range(100)])) == []
    same = standing | {"batch_score": [0.2 + 0.01 * (step % 3) for step in range(100)]}
    assert kinds(make_records(**same, j=3.0)) == ["stalled"]  # scores stand, and J has not risen
    assert kinds(make_records(**same, j=5.0)) == []
    assert kinds(make_records(**standing | {"j_se": 0.05}, j=4.0)) == []  # a flat target: chance may be all there is


def test_a_j_that_rises_slowly_under_much_noise_has_not_stalled(make_records: MakeRecords) -> None:
    # no evaluation is three standard errors above the start, but their trend is clear
    wobble = [0.15 * (-1) ** (step // 5) for step in range(100)]
    course = {"start": None, "start_j": 18.6, "j_se": 0.2, "intended_spread": 0.75, "batch_score": 0.4}
    assert kinds(make_records(**course, j=[18.6 + each for each in wobble])) == ["stalled"]
    rising = [18.6 + 0.006 * step + each for step, each in enumerate(wobble)]
    assert kinds(make_records(**course, j=rising)) == []


def test_a_regret_that_is_estimated_has_diverged_only_beyond_its_noise(make_records: MakeRecords) -> None:
    course = {"start": -0.1, "start_j": 4.0, "intended_spread": 0.7}
    assert kinds(make_records(**course, regret=0.3, j=3.6, j_se=0.2)) == []
    assert kinds(make_records(**course, regret=0.3, j=3.6, j_se=0.001)) == ["diverged"]


def test_batches_that_score_nothing_are_told_of(make_records: MakeRecords) -> None:
    assert kinds(make_records(start=None, intended_spread=0.75, batch_score=0.0)) == ["zero-scores"]
    assert kinds(make_records(batch_score=0.0), "random") == ["zero-scores"]
    assert kinds(make_records(batch_score=0.0)[:20]) == []
    assert kinds(make_records(regret=FALLING, batch_score=[0.0] * 40 + [0.1] * 60)) == []


@pytest.mark.parametrize("method", ["random", "mcmc", "mars", "adalead", "kmer-plan"])
def test_methods_without_a_trained_policy_raise_no_alarm(method: str, make_records: MakeRecords) -> None:
    assert kinds(make_records(regret=0.6, entropy_gap=4.0), method) == []
    assert kinds(make_records(regret=6.0), method) == []


def test_a_loss_that_blows_up_has_diverged(make_records: MakeRecords) -> None:
    huge = [1.0] * 3 + [2e7] + [1.0] * 96
    assert kinds(make_records(regret=FALLING, loss=huge)[:20]) == ["diverged"]
    assert kinds(make_records(regret=FALLING, loss=[-value for value in huge])[:20]) == ["diverged"]
    assert kinds(make_records(regret=FALLING, loss=huge)) == []  # the regret tells that it came back
    rising = [0.1 + 0.01 * step for step in range(100)]
    assert kinds(make_records(start=None, intended_spread=0.5, batch_score=rising, loss=huge)) == ["diverged"]
    grown = [0.5] * 50 + [1.5e4] * 50
    assert kinds(make_records(regret=FALLING, loss=grown)) == ["diverged"]
    assert kinds(make_records(regret=FALLING, loss=[0.001] * 50 + [90.0] * 50)) == []  # plans start at nothing


def test_a_policy_far_worse_than_untrained_has_diverged(make_records: MakeRecords) -> None:
    assert kinds(make_records(regret=2.5)) == ["diverged"]
    assert kinds(make_records(regret=1.5)) == []
    once = [2.5 if step == 49 else 0.3 for step in range(100)]
    assert kinds(make_records(regret=once)[:50]) == []  # a single evaluation may be transient
    early = [2.5 if step < 20 else 0.3 for step in range(100)]
    assert kinds(make_records(regret=early)[:20]) == []  # plans of the first batches are too sure of themselves


def test_few_steps_are_too_few_to_say(make_records: MakeRecords) -> None:
    bad = make_records(regret=2.5, entropy_gap=2.0)
    last = [record | {"step": step} for step, record in zip((20, 40, 60, 80, 100), bad[4::5], strict=False)]
    assert kinds([bad[0], *last[:4]]) == []
    assert kinds([bad[0], *last]) == ["diverged", "collapsed"]


def test_a_policy_that_comes_back_to_its_start_has_not_stalled(make_records: MakeRecords) -> None:
    back = [0.2 if step < 70 else 0.6 for step in range(100)]
    assert kinds(make_records(regret=back)[:75]) == []
    assert kinds(make_records(regret=back)) == ["stalled"]


def test_missing_entropy_is_a_collapse(make_records: MakeRecords) -> None:
    assert kinds(make_records(regret=FALLING, entropy_gap=2.0)) == ["collapsed"]
    assert kinds(make_records(regret=FALLING, entropy_gap=1.0)) == []
    assert kinds(make_records(regret=FALLING, entropy_gap=2.0)[:20]) == []


def test_intentions_that_hardly_differ_are_a_collapse_where_the_truth_is_not_known(make_records: MakeRecords) -> None:
    rising = [0.1 + 0.01 * step for step in range(100)]
    records = make_records(start=None, intended_spread=0.1, batch_score=rising)
    assert kinds(records) == []
    assert kinds(records, exploration={"epsilon": 0.05}) == ["collapsed"]  # the rest is random on purpose
    assert kinds(make_records(start=None, intended_spread=0.01, batch_score=rising)) == ["collapsed"]


def test_the_remedy_names_the_setting_that_is_wrong(make_records: MakeRecords) -> None:
    def remedy(records: list[dict[str, Any]], method: str = "sgfn-kl", **settings: Any) -> str:
        return alarms(history_of(config_of(method, **settings), records))[0].remedy

    few = make_records(regret=FALLING, entropy_gap=2.0)
    assert "objective.lambda_ratio=0.003" in remedy(few, objective={"lambda_ratio": 0.3})
    assert "rl.temperature (0.6 now)" in remedy(few, "ppo")
    assert "reward.beta (3 now)" in remedy(few)
    huge = make_records(loss=1e9)
    assert "optimiser.learning_rate (1 now; try 0.005)" in remedy(huge, optimiser={"learning_rate": 1.0})
    assert "optimiser.learning_rate (0.002 now; try 0.0002)" in remedy(huge, optimiser={"learning_rate": 0.002})


def test_numbers_of_any_size_are_no_error(make_records: MakeRecords) -> None:
    for size in (1e-320, 1e200, -1e308, 1e308):
        swings = [size * (-1) ** step for step in range(100)]
        for start in (None, size):
            columns = {"regret": swings, "entropy_gap": swings} if start else {"intended_spread": swings}
            kinds(make_records(start=start, batch_score=swings, loss=swings, **columns))
