"""Channels from pairs of strings: estimates, intervals, the choice of a model, and the file."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.stats import binom

import stochflow
from stochflow import Channel, ConfigError, DataError, FittedChannel, confusion, fit_channel
from stochflow.config.environment import ChannelConfig
from stochflow.core.arrays import Array
from stochflow.environments import fitted_channel
from stochflow.environments.channel_factory import make_channel, with_matrix_inside
from stochflow.environments.channels import positional
from stochflow.environments.sequences.task import Alphabet

DNA = Alphabet("ACGT")
# asymmetric, so that a transposed estimate is far off: G→A is common, A→G rare
TRUTH = np.array(
    [[0.955, 0.01, 0.03, 0.005], [0.002, 0.97, 0.008, 0.02], [0.12, 0.01, 0.86, 0.01], [0.001, 0.07, 0.001, 0.928]]
)
LENGTH = 8


def reads(channel: Channel, num: int, seed: int) -> pd.DataFrame:
    """Random designs and what a channel makes of them."""
    generator = torch.Generator().manual_seed(seed)
    intended = torch.randint(len(DNA), (num, LENGTH), generator=generator)
    observed = [channel.sample(intended[:, position], position, generator) for position in range(LENGTH)]
    return pd.DataFrame({"intended": DNA.decode(intended), "observed": DNA.decode(torch.stack(observed, dim=1))})


def drifting(last: float) -> Channel:
    """The true channel with errors that become `last` times as frequent toward the end."""
    factors = np.linspace(1.0, last, LENGTH)[:, None, None]
    return positional(torch.from_numpy(np.eye(4) + factors * (TRUTH - np.eye(4))))


def counted(table: Array) -> pd.DataFrame:
    """Pairs of single letters with these counts, [K, K]."""
    rows = [(DNA.letters[a], DNA.letters[b], int(table[a, b])) for a in range(4) for b in range(4)]
    return pd.DataFrame(rows, columns=["intended", "observed", "count"])


def test_rows_are_intended_letters() -> None:
    found = fit_channel(reads(confusion(TRUTH.tolist()), 20_000, seed=0), model="global")
    totals = found.counts[0].sum(axis=1, keepdims=True)
    tolerance = 4.5 * np.sqrt(TRUTH * (1 - TRUTH) / totals) + 2 / totals
    assert (np.abs(found.matrices[0] - TRUTH) < tolerance).all()
    assert (np.abs(found.matrices[0].T - TRUTH) > tolerance).any()


def test_intervals_cover_the_truth_as_often_as_they_should() -> None:
    num_fits, num_letters = 250, 2000
    draw = np.random.default_rng(1)
    covered = np.zeros((4, 4))
    for _ in range(num_fits):
        found = fit_channel(counted(draw.multinomial(num_letters, TRUTH)), model="global")
        covered += (found.lower[0] <= TRUTH) & (found.upper[0] >= TRUTH)
        assert ((found.lower <= found.matrices) & (found.matrices <= found.upper)).all()
    # what Wilson intervals cover at these counts, exactly
    successes = np.arange(num_letters + 1)
    lower, upper = fitted_channel.wilson_interval(successes, np.full_like(successes, num_letters))
    inside = (lower <= TRUTH[..., None]) & (upper >= TRUTH[..., None])
    exact = (binom.pmf(successes, num_letters, TRUTH[..., None]) * inside).sum(axis=-1)
    assert 0.94 < exact.mean() < 0.96
    assert exact.min() > 0.9
    error = math.sqrt((exact * (1 - exact)).mean() / (num_fits * exact.size))
    assert abs(covered.mean() / num_fits - exact.mean()) < 4 * error


def test_wilson_intervals_have_the_published_values() -> None:
    lower, upper = fitted_channel.wilson_interval(np.array([0, 1, 15, 20, 0]), np.array([20, 29, 148, 20, 0]))
    # 15 of 148: Newcombe (1998), table I, method 3; 1 of 29 and 0 of 20 as well
    np.testing.assert_allclose(lower, [0.0, 0.0061, 0.0624, 0.8389, 0.0], atol=6e-5)
    np.testing.assert_allclose(upper, [0.1611, 0.1718, 0.1605, 1.0, 1.0], atol=6e-5)


def test_no_probability_is_zero_and_rows_sum_to_one() -> None:
    for model in ("global", "position"):
        found = fit_channel(pd.DataFrame({"intended": ["ACGT"], "observed": ["ACGT"]}), model=model)
        assert found.matrices.min() > 0
        np.testing.assert_allclose(found.matrices.sum(axis=-1), 1.0, atol=1e-15)


def test_smoothing_adds_half_a_letter_of_dna() -> None:
    table = np.array([[97, 0, 2, 1], [0, 10, 0, 0], [1, 1, 1, 1], [0, 0, 0, 8]])
    found = fit_channel(counted(table), model="global")
    np.testing.assert_allclose(found.matrices[0], (table + 0.5) / (table + 0.5).sum(axis=1, keepdims=True), atol=1e-15)
    assert (found.counts[0] == table).all()


def test_errors_that_drift_have_matrices_by_position() -> None:
    channel = drifting(4.0)
    found = fit_channel(reads(channel, 5000, seed=0))
    assert found.model == "position"
    assert found.held_out["position"] > found.held_out["global"]
    assert found.reason.startswith("position matrices predict held-out letters better by ")
    rates, lower, upper = found.error_rates
    true_rates = 1 - np.array([float(channel.matrix(position).diagonal().mean()) for position in range(LENGTH)])
    assert np.abs(rates - true_rates).max() < 4.5 * math.sqrt(0.3 * 0.7 / 5000)
    assert ((lower < rates) & (rates < upper)).all()


def test_errors_that_do_not_drift_have_one_matrix() -> None:
    num_fits = 40
    models = [fit_channel(reads(confusion(TRUTH.tolist()), 1000, seed)).model for seed in range(num_fits)]
    # two standard errors are exceeded by chance in 2.3 % of cases
    assert models.count("position") <= binom.ppf(0.9999, num_fits, 0.023)


def test_held_out_likelihoods_are_those_of_fits_to_the_other_pairs() -> None:
    frame = reads(drifting(4.0), 500, seed=3)
    found = fit_channel(frame)
    held = np.arange(len(frame)) % 5 == 4
    for model in ("global", "position"):
        matrices = fit_channel(frame[~held], model=model).channel.log_matrices(LENGTH).numpy()
        a, b = (DNA.encode(frame.loc[held, name].tolist()).numpy() for name in ("intended", "observed"))
        assert found.held_out[model] == pytest.approx(matrices[np.arange(LENGTH), a, b].mean(), abs=1e-12)


def test_positions_without_a_letter_follow_all_positions() -> None:
    frame = pd.DataFrame({"intended": ["AC"] * 50 + ["CA"] * 0, "observed": ["AC"] * 45 + ["CC"] * 5})
    with pytest.warns(UserWarning, match="no pair intends G, T, so nothing is known"):
        found = fit_channel(frame, model="position")
    with pytest.warns(UserWarning, match="no pair intends"):
        everywhere = fit_channel(frame, model="global")
    np.testing.assert_allclose(found.matrices[1, 0], everywhere.matrices[0, 0], atol=1e-15)
    assert (found.lower[1, 0] == 0).all()
    assert (found.upper[1, 0] == 1).all()
    np.testing.assert_allclose(everywhere.matrices[0, 2:], 0.25)


def test_a_count_is_as_many_rows() -> None:
    frame = reads(drifting(3.0), 300, seed=0)
    frame["count"] = np.random.default_rng(0).integers(0, 12, len(frame))
    repeated = frame.loc[frame.index.repeat(frame["count"]), ["intended", "observed"]]
    once, many = fit_channel(frame), fit_channel(repeated)
    assert (once.counts == many.counts).all()
    assert once.held_out == many.held_out
    assert once.num_pairs == many.num_pairs == frame["count"].sum()


def edited(num: int, rates: tuple[float, float], seed: int) -> pd.DataFrame:
    """Reads of 40 letters with 1 % substitutions and these shares of deletions and duplications."""
    draw = np.random.default_rng(seed)
    intended = draw.integers(4, size=(num, 40))
    observed = np.where(
        draw.random(intended.shape) < 0.01, (intended + draw.integers(1, 4, intended.shape)) % 4, intended
    )
    chance = draw.random(intended.shape)
    copies = np.where(chance < rates[0], 0, np.where(chance < sum(rates), 2, 1))
    rows = [np.repeat(row, number) for row, number in zip(observed, copies, strict=True)]
    texts = [["".join(DNA.letters[token] for token in row) for row in table] for table in (intended, rows)]
    return pd.DataFrame({"intended": texts[0], "observed": texts[1]})


def test_deletions_and_duplications_are_recovered() -> None:
    rates, num_fits = (0.004, 0.001), 40
    inside = np.zeros(2)
    for seed in range(num_fits):
        found = fit_channel(edited(250, rates, seed), model="global")
        for place, (name, truth) in enumerate(zip(("deletion", "duplication"), rates, strict=True)):
            edit = found.edits[name]
            inside[place] += edit.lower <= truth <= edit.upper
            assert edit.rate == edit.number / (250 * 40)
    assert (inside >= binom.ppf(1e-4, num_fits, 0.93)).all()
    assert found.num_left_out == 0


def in_context(num: int, factor: float, seed: int) -> pd.DataFrame:
    """Reads whose errors are `factor` times as frequent after G."""
    draw = np.random.default_rng(seed)
    intended = draw.integers(4, size=(num, LENGTH))
    before = np.concatenate([np.full((num, 1), 4), intended[:, :-1]], axis=1)
    rates = np.where(before == 2, factor, 1.0) * (1 - np.diagonal(TRUTH))[intended]
    wrong = draw.random(intended.shape) < rates
    observed = np.where(wrong, (intended + draw.integers(1, 4, intended.shape)) % 4, intended)
    return pd.DataFrame(
        {name: DNA.decode(torch.from_numpy(table)) for name, table in (("intended", intended), ("observed", observed))}
    )


def test_errors_that_depend_on_the_letter_before_have_matrices_by_context(tmp_path: Path) -> None:
    found = fit_channel(in_context(5000, 3.0, seed=0))
    assert found.model == "context"
    assert found.matrices.shape == (5, 4, 4)
    rates, lower, upper = found.error_rates
    base = float((1 - np.diagonal(TRUTH)).mean())
    assert (lower[2], upper[2]) == (pytest.approx(3 * base, rel=0.1), pytest.approx(3 * base, rel=0.1))
    assert rates[[0, 1, 3, 4]] == pytest.approx(base, rel=0.1)
    # the mean is what one matrix would have been
    everywhere = fit_channel(in_context(5000, 3.0, seed=0), model="global")
    np.testing.assert_allclose(found.mean, everywhere.matrices[0], atol=2e-4)
    found.save(tmp_path / "channel.yaml")
    back = FittedChannel.load(tmp_path / "channel.yaml")
    np.testing.assert_array_equal(back.matrices, found.matrices)
    with pytest.warns(UserWarning, match=r"channel\.yaml depend on the letter before; the mean"):
        by_file = stochflow.exact("tfbind8", noise=str(tmp_path / "channel.yaml"))
    (tmp_path / "mean.yaml").write_text(yaml.safe_dump(found.mean.tolist()), encoding="utf-8")
    assert by_file["min_kl"] == stochflow.exact("tfbind8", noise=str(tmp_path / "mean.yaml"))["min_kl"]


def test_errors_that_do_not_depend_on_the_letter_before_have_no_contexts() -> None:
    num_fits = 40
    models = [fit_channel(in_context(1000, 1.0, seed)).model for seed in range(num_fits)]
    assert models.count("context") <= binom.ppf(0.9999, num_fits, 0.023)


def test_the_probability_of_an_order_is_that_of_its_letters() -> None:
    frame = edited(300, (0.01, 0.005), seed=0)
    intact = 1 - sum(edit.rate for edit in fit_channel(frame, model="global").edits.values())
    for model in ("global", "context", "position"):
        found = fit_channel(frame, model=model)
        order = frame["intended"][0]
        expected = intact ** len(order)
        for place, letter in enumerate(order):
            token = DNA.letters.index(letter)
            before = DNA.letters.index(order[place - 1]) if place else 4
            group = {"global": 0, "context": before, "position": place}[model]
            expected *= found.matrices[group, token, token]
        assert found.exact_probability(order) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(DataError, match="not written with the letters ACGT"):
        found.exact_probability("ACX")
    with pytest.raises(DataError, match="has 3 letters and the channel 40 positions"):
        found.exact_probability("ACG")


@pytest.mark.parametrize("model", ["global", "context", "position"])
@pytest.mark.filterwarnings("ignore:.*(not simulated|depend on the letter before):UserWarning")
def test_the_probability_of_an_order_is_the_same_wherever_the_channel_goes(model: str, tmp_path: Path) -> None:
    frame = edited(300, (0.01, 0.005), seed=0)
    found = fit_channel(frame, model=model)
    assert min(edit.rate for edit in found.edits.values()) >= 0.0 < found.edits["deletion"].rate
    found.save(tmp_path / "channel.yaml")
    order = frame["intended"][0]
    expected = pytest.approx(found.exact_probability(order), rel=1e-9)
    config = ChannelConfig(kind="confusion", file=str(tmp_path / "channel.yaml"))
    for letters in ("ACGT", "TGAC"):
        alphabet = Alphabet(letters)
        for each in (config, with_matrix_inside(config)):
            channel = make_channel(each, 4, len(order), letters)
            assert channel.exact_probability(alphabet.encode([order])).item() == expected
    campaign = stochflow.Campaign.create(tmp_path / "lab", length=len(order), noise=str(tmp_path / "channel.yaml"))
    opened = stochflow.Campaign.open(campaign.directory)
    assert opened.judge([order])["probability"].item() == expected
    asked = opened.ask(2)
    assert asked["probability"].tolist() == pytest.approx([found.exact_probability(each) for each in asked["order"]])


def test_error_free_pairs_have_one_matrix() -> None:
    frame = pd.DataFrame({"intended": ["ACGTACGT", "TTGACCAG"] * 50})
    found = fit_channel(frame.assign(observed=frame["intended"]))
    assert (found.model, found.edits["deletion"].rate) == ("global", 0.0)


def test_few_pairs_have_no_held_out_likelihood() -> None:
    found = fit_channel(pd.DataFrame({"intended": ["ACGT"] * 4, "observed": ["ACGT"] * 4}))
    assert found.model == "global"
    assert all(math.isnan(value) for value in found.held_out.values())


def test_pairs_of_several_lengths_have_one_matrix() -> None:
    frame = pd.DataFrame({"intended": ["ACGT", "ACGTA"] * 5, "observed": ["ACGT", "ACGTA"] * 5})
    found = fit_channel(frame)
    assert (found.model, found.reason) == ("global", "pairs have 4 to 5 letters, not all the same number")
    with pytest.raises(DataError, match=r"because pairs have 4 to 5 letters.*; choose --model global"):
        fit_channel(frame, model="position")


def test_matrices_that_no_file_could_hold_are_not_fitted() -> None:
    frame = pd.DataFrame({"intended": ["ACDEFGHIKLMNPQRSTVWY" * 6] * 10})
    frame["observed"] = frame["intended"]
    assert fit_channel(frame, alphabet="protein").reason.endswith("would be too large")
    with pytest.raises(DataError, match="120 matrices of 20 letters would be too large; choose --model global"):
        fit_channel(frame, alphabet="protein", model="position")


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="'best' is not known; choose one of: auto, global, position, context"):
        fit_channel(pd.DataFrame({"intended": ["A"], "observed": ["A"]}), model="best")


@pytest.mark.parametrize("last", [1.0, 4.0])
def test_a_saved_channel_is_read_back(last: float, tmp_path: Path) -> None:
    frame = pd.concat([reads(drifting(last), 5000, seed=0), pd.DataFrame({"intended": ["ACGT"], "observed": ["TT"]})])
    found = fit_channel(frame)
    assert found.model == ("global" if last == 1.0 else "position")
    path = tmp_path / "channel.yaml"
    found.save(path)
    back = FittedChannel.load(path)
    np.testing.assert_array_equal(back.matrices, found.matrices)
    np.testing.assert_array_equal(back.counts, found.counts)
    np.testing.assert_allclose(back.lower, found.lower, atol=1e-8)
    np.testing.assert_allclose(back.upper, found.upper, atol=1e-8)
    assert (back.letters, back.model, back.reason) == (found.letters, found.model, found.reason)
    assert (back.held_out, back.smoothing) == (found.held_out, found.smoothing)
    assert (back.num_pairs, back.num_left_out) == (found.num_pairs, found.num_left_out)
    assert (back.num_pairs + back.num_left_out, back.num_ambiguous) == (5001, 0)
    assert 1 <= back.num_left_out <= 5  # at four times the errors a few pairs of equal length too
    assert back.edits == found.edits


def test_the_largest_file_is_read_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"intended": ["ACDEFGHIKLMNPQRSTVWY" * 5] * 3})
    frame["observed"] = frame["intended"]
    found = fit_channel(frame, alphabet="protein", model="position")
    found.save(tmp_path / "channel.yaml")
    np.testing.assert_array_equal(FittedChannel.load(tmp_path / "channel.yaml").matrices, found.matrices)


@pytest.mark.parametrize("last", [1.0, 4.0])
def test_the_optimum_under_a_file_is_that_of_its_matrices(last: float, tmp_path: Path) -> None:
    found = fit_channel(reads(drifting(last), 5000, seed=0))
    path = tmp_path / "channel.yaml"
    found.save(path)
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump((found.matrices[0] if last == 1.0 else found.matrices).tolist()), encoding="utf-8")
    by_file, by_matrix = (stochflow.exact("tfbind8", noise=str(each)) for each in (path, plain))
    assert by_file["min_kl"] == by_matrix["min_kl"] > 0
    assert by_file["attainable_score"] == by_matrix["attainable_score"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fit_channel(counted(np.full((4, 4), 5)))
    path = tmp_path / "channel.yaml"
    path.write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stochflow.core.files.os.replace", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        found.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["channel.yaml"]
    assert path.read_text(encoding="utf-8") == "old"


def test_a_name_that_noise_would_not_know_is_refused(tmp_path: Path) -> None:
    found = fit_channel(counted(np.full((4, 4), 5)))
    with pytest.raises(ConfigError, match=r"must end with \.yaml"):
        found.save(tmp_path / "channel.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "best"}, "best"),
        ({"counts": None}, "shape"),
        ({"counts": [[0.5] * 4] * 4}, "whole numbers"),
        ({"counts": [[-1] * 4] * 4}, "whole numbers"),
        ({"matrix": [[2.0] * 4] * 4}, "outside"),
        ({"lower": [[math.nan] * 4] * 4}, "outside"),
        ({"upper": [["x"] * 4] * 4}, "shape"),
        ({"letters": "ACG"}, "shape"),
        ({"held_out": 5}, "items"),
        ({"pairs": "many"}, "many"),
        ({"deletion": {"rate": 2, "lower": 0, "upper": 1, "number": 3}}, "rates outside"),
        ({"deletion": 0.1}, "subscriptable"),
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "channel.yaml"
    fit_channel(counted(np.full((4, 4), 5))).save(path)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump(content | change), encoding="utf-8")
    with pytest.raises(DataError, match=rf"is no channel that .* has written \(.*{reason}.*; fit it again") as caught:
        FittedChannel.load(path)
    assert "\n" not in str(caught.value)
