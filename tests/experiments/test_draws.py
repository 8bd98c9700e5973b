"""Draws of designs: different ones, those that are left out, and the best of them."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.experiments.draws import Request, distinct, drawn, ranked


class Urn:
    """Draws letters one after another from an alphabet that begins anew, and counts its draws."""

    def __init__(self, letters: str, scores: dict[str, float] | None = None, **columns: object) -> None:
        self.letters, self.scores, self.columns, self.num = letters, scores or {}, columns, 0

    def __call__(self, num: int) -> pd.DataFrame:
        names = [self.letters[number % len(self.letters)] for number in range(self.num, self.num + num)]
        self.num += num
        scores = [self.scores.get(name, 1.0) for name in names]
        frame = pd.DataFrame({"sequence": names, "score": scores, "log_prob": -1.0})
        return frame.assign(**{key: frame["sequence"].isin(list(str(value))) for key, value in self.columns.items()})


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def best(urn: Urn, request: Request, excluded: str = "", seed: int = 0) -> list[str]:
    return request.drawn(urn, "sequence", set(excluded), generator(seed))["sequence"].tolist()


def test_plain_draws_are_as_many_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.experiments.draws._CHUNK", 4)
    assert "".join(drawn(Urn("ABC"), 10)["sequence"]) == "ABCABCABCA"


def test_excluded_designs_are_no_part_of_different_ones() -> None:
    assert distinct(Urn("ABCD"), "sequence", {"B"}, wanted=3)["sequence"].tolist() == ["A", "C", "D"]
    assert best(Urn("ABCD"), Request(2, unique=True), excluded="A") == ["B", "C"]


def test_the_best_designs_come_first_and_once() -> None:
    scores = {"A": 0.1, "B": 0.9, "C": 0.5, "D": 0.7}
    assert best(Urn("ABCD", scores), Request(best=3)) == ["B", "D", "C"]
    assert best(Urn("ABCD", scores), Request(best=3), excluded="B") == ["D", "C", "A"]


def test_as_many_are_drawn_as_were_asked_for_and_no_more() -> None:
    urn = Urn("ABCD", {"D": 9.0})
    assert sorted(best(urn, Request(3, best=3))) == ["A", "B", "C"]
    assert urn.num == 3


def test_by_default_draws_go_on_until_there_are_enough() -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 15_000)))
    urn = Urn(letters)
    assert len(set(best(urn, Request(best=12_000)))) == 12_000
    assert 12_000 <= urn.num < 20_000
    assert len(best(Urn("ABC"), Request(best=5))) == 3


def test_what_breaks_a_constraint_is_not_ranked() -> None:
    assert best(Urn("ABC", {"A": 9.0}, feasible="BC"), Request(best=3)) in (["B", "C"], ["C", "B"])


def test_what_has_no_score_is_not_ranked_and_this_is_said() -> None:
    with pytest.warns(UserWarning, match="5,000 draws were never paid for"):
        assert best(Urn("AB", {"A": float("nan")}), Request(best=2)) == ["B"]
    with pytest.warns(UserWarning, match="never paid for"), pytest.raises(ConfigError, match="no draw can be ranked"):
        best(Urn("A", {"A": float("nan")}), Request(best=2))


def test_of_equal_scores_the_one_that_the_policy_prefers_counts_first() -> None:
    frame = pd.DataFrame({"sequence": list("ABCD"), "score": [1, 1, 2, 1], "log_prob": [-3.0, -1.0, -9.0, -2.0]})
    for seed in range(5):
        assert ranked(frame, generator(seed))["sequence"].tolist() == ["C", "B", "D", "A"]


def test_what_nothing_tells_apart_is_chosen_at_random_by_the_seed() -> None:
    chosen = Counter(name for seed in range(200) for name in best(Urn("ABCDEFGH"), Request(8, best=2), seed=seed))
    # 400 places for eight letters; a count is binomial with deviation √(200·¼·¾) = 6.1
    assert np.allclose([chosen[letter] for letter in "ABCDEFGH"], 50, atol=5 * 6.2)
    assert best(Urn("ABCDEFGH"), Request(best=4), seed=3) == best(Urn("ABCDEFGH"), Request(best=4), seed=3)


@pytest.mark.parametrize(
    ("request_", "excludes", "message"),
    [
        (Request(0), False, "at least 1"),
        (Request(best=-1), False, "at least 1"),
        (Request(5), True, "add --best N or --unique"),
        (Request(5, best=6), False, "raise -n"),
        (Request(best=6, pays=True), False, "say with -n"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(request_: Request, excludes: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        request_.check(excludes)


def test_more_than_there_are_cannot_be_asked_for() -> None:
    Request(best=16).check_space(16, 0)
    Request(best=10**9).check_space(None, 5)
    Request(10**9, unique=True).check_space(16, 5)
    with pytest.raises(ConfigError, match="there are 16 designs, so no 17"):
        Request(best=17).check_space(16, 0)
    with pytest.raises(ConfigError, match="16 designs less 1 excluded, so no 16"):
        Request(best=16).check_space(16, 1)
