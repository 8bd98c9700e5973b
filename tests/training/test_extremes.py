"""Rewards, noise and spaces at the edge of what numbers can hold: finite results, or one sentence that says why not."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import stochflow
from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError, DataError, OracleError
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import MAX_SCORE
from stochflow.sampling.score_memory import ScoreMemory, checked_scores
from stochflow.surrogates.kmer_ridge import KmerRidge

SEQUENCES = ["".join(letters) for letters in itertools.product("ACGT", repeat=3)]
SHARES = np.random.default_rng(0).uniform(0.1, 1.0, len(SEQUENCES))
ONE = np.where(np.arange(len(SEQUENCES)) == 5, 1.0, 0.0)
SCORES = {
    "tiny": 1e-300 * SHARES,
    "huge": 1e300 * SHARES,
    "wide": 10.0 ** np.linspace(-300, 300, len(SEQUENCES)),
    "equal": np.ones(len(SEQUENCES)),
    "one": ONE,
}


def write_table(path, scores, sequences=SEQUENCES):
    pd.DataFrame({"sequence": sequences, "score": scores}).to_csv(path, index=False)
    return path


def trained(folder, scores, method, *settings, sequences=SEQUENCES, **options):
    table = write_table(folder / "scores.csv", scores, sequences)
    small = ["optimiser.batch_size=8", "optimiser.updates=4", "evaluation.num_samples=32", "model.width=8"]
    small += ["dynamics.rounds=2", "dynamics.sample_size=32", *settings]
    options |= {"gap_score": 0.0, "feedback": "step"}
    return stochflow.train(table=table, method=method, steps=3, settings=small, out=folder / "run", **options)


def assert_finite(run):
    summary = run.summary.model_dump()
    assert [name for name, value in summary.items() if isinstance(value, float) and not math.isfinite(value)] == []
    metrics = run.metrics.select_dtypes("number")
    assert np.isfinite(metrics.to_numpy(dtype=float, na_value=0.0)).all()
    weights = run.experiment().network.state_dict()
    assert all(bool(weight.isfinite().all()) for weight in weights.values())


EXTREMES = [(kind, "sgfn-kl") for kind in SCORES] + [(kind, method) for kind in ("wide", "one") for method in METHODS]


@pytest.mark.parametrize(("kind", "method"), sorted(set(EXTREMES)))
def test_every_method_stays_finite_on_extreme_scores(tmp_path, kind, method):
    floor = ["reward.floor=1e-305", "reward.beta=1"]
    assert_finite(trained(tmp_path, SCORES[kind], method, *floor, noise=0.25))


@pytest.mark.parametrize("method", ["sgfn-kl", "sgfn-db", "gfn-tb", "sac"])
@pytest.mark.parametrize("noise", [1 - 1e-6, 1 - 1e-12, 1e-12])
def test_noise_may_come_close_to_one_and_to_none(tmp_path, method, noise):
    run = trained(tmp_path, SHARES, method, noise=noise)
    assert_finite(run)
    assert run.summary.regret > -1e-6


@pytest.mark.parametrize("method", METHODS)
def test_designs_may_have_one_letter(tmp_path, method):
    run = trained(tmp_path, SHARES[:4], method, sequences=list("ACGT"), noise=0.25)
    assert_finite(run)
    assert set(pd.read_csv(run.path / "samples.csv")["sequence"]) <= set("ACGT")


def test_an_alphabet_of_one_letter_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="2 to 128 letters"):
        stochflow.train(oracle=len, alphabet="A", length=3, out=tmp_path / "run")


def test_a_thousandfold_exponent_stays_finite(tmp_path):
    run = trained(tmp_path, SHARES, "sgfn-kl", "reward.beta=1000", "reward.floor=1e-300", noise=0.25)
    assert_finite(run)


@pytest.mark.parametrize("scores", [[1e-300, 1e-150], [1e150, 1e300], [0.5, 2.0]])
def test_log_reward_is_the_exponent_times_the_logarithm(scores):
    found = Reward(beta=3.0, floor=1e-6, ramp=0.0).log_reward(torch.tensor(scores, dtype=torch.float64))
    expected = [max(3.0 * math.log(score), math.log(1e-6)) for score in scores]
    assert found.tolist() == pytest.approx(expected, rel=1e-14)


def test_nothing_scores_the_floor():
    assert Reward(beta=3.0, floor=1e-6, ramp=0.0).log_reward(torch.zeros(1)).item() == pytest.approx(math.log(1e-6))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_repeated_measurements_are_averaged_as_rewards_at_every_scale(scale):
    memory = ScoreMemory(2, 2, Reward(beta=3.0, floor=1e-300, ramp=0.0) if scale >= 1 else Reward(1.0, 1e-300, 0.0))
    sequence = torch.tensor([[0, 1], [0, 1], [1, 1]])
    memory.pay(sequence, lambda rows: scale * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    memory.pay(sequence[:1], lambda rows: scale * torch.tensor([3.0], dtype=torch.float64))
    beta = 3.0 if scale >= 1 else 1.0
    mean = ((1.0 + 2.0**beta + 3.0**beta) / 3.0) ** (1.0 / beta)
    assert (memory.lookup(sequence) / scale).tolist() == pytest.approx([mean, mean, 3.0], rel=1e-9)


@pytest.mark.parametrize("exponent", [-990, 0, 990])
def test_the_reward_model_does_the_same_at_every_scale(exponent):
    tokens = torch.cartesian_prod(*[torch.arange(3)] * 4)
    scores = torch.rand(len(tokens), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, scaled = KmerRidge(3, 4), KmerRidge(3, 4)
    for size in (40, 81):
        plain.fit(tokens[:size], scores[:size])
        scaled.fit(tokens[:size], scores[:size] * 2.0**exponent)
    assert torch.equal(scaled.predict_mean(tokens), plain.predict_mean(tokens) * 2.0**exponent)
    assert scaled.spread == plain.spread * 2.0**exponent > 0


@pytest.mark.parametrize("score", [math.nan, math.inf, -1.0, 2.0 * MAX_SCORE])
def test_scores_that_cannot_be_summed_are_refused(score):
    with pytest.raises(OracleError, match="neither negative nor above 1e\\+300"):
        checked_scores([1.0, score], 2)


def test_a_table_of_scores_that_cannot_be_summed_names_the_remedy(tmp_path):
    with pytest.raises(ConfigError, match=r"1e\+300 at most; scale the scores with --set table.scale=unit"):
        trained(tmp_path, 1e301 * SHARES, "sgfn-kl")
    assert_finite(trained(tmp_path, 1e301 * SHARES, "sgfn-kl", "table.scale=unit"))


def test_scores_below_the_floor_name_the_remedy(tmp_path):
    with pytest.raises(ConfigError, match=r"not above reward\.floor"):
        trained(tmp_path, 1e-300 * SHARES, "sgfn-kl")


def test_nothing_but_zeros_is_refused(tmp_path):
    with pytest.raises(DataError, match="no score of scores is above 0"):
        trained(tmp_path, np.zeros(len(SEQUENCES)), "sgfn-kl")
