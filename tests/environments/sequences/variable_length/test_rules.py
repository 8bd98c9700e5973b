"""What histories write and how likely each is to have written it, against all of them written out."""

import itertools
import math

import pytest
import torch

from stochflow.environments.sequences.variable_length import LengthRules, StopAlphabet

PLAIN = LengthRules(2, 2, 4)
EDITED = LengthRules(2, 2, 4, deletion=0.2, duplication=0.1)
RULES = [
    PLAIN,
    LengthRules(2, 1, 3, deletion=0.3),
    LengthRules(2, 3, 4, duplication=0.2),
    EDITED,
    LengthRules(3, 1, 3, deletion=0.05, duplication=0.6),
    LengthRules(1, 2, 2, deletion=0.5, duplication=0.25),
]


def everything(rules: LengthRules) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(rules.num_tokens), repeat=rules.max_length)))


def walked(rules: LengthRules, history: list[int]) -> tuple[str, float] | None:
    """What a history writes and its weight, cycle by cycle; None when it breaks a rule."""
    design, weight, stopped = "", 1.0, False
    for token in history:
        if token == rules.stop:
            if not stopped and len(design) < rules.min_length:
                return None
            stopped = True
            continue
        if stopped or len(design) >= rules.max_length:
            return None
        if token < rules.num_letters:
            design += "abc"[token]
            weight *= 1 - rules.deletion - rules.duplication
        elif rules.deletion and token == rules.stop + 1:
            weight *= rules.deletion
        else:
            design += 2 * "abc"[token - rules.first_double]
            weight *= rules.duplication
    return design, weight


@pytest.mark.parametrize("rules", RULES)
def test_shares_are_those_of_brute_force(rules: LengthRules) -> None:
    histories = everything(rules)
    found = [walked(rules, history) for history in histories.tolist()]
    totals: dict[str, float] = {}
    for each in found:
        if each is not None:
            totals[each[0]] = totals.get(each[0], 0.0) + each[1]
    expected = [1e-30 if each is None else each[1] / totals[each[0]] for each in found]
    shares = rules.log_shares(histories).exp()
    torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.float64), atol=0, rtol=1e-9)
    assert rules.possible(histories).tolist() == [each is not None for each in found]
    assert any(each is None for each in found)
    if not rules.edits:
        assert torch.equal(shares == 1.0, rules.possible(histories))


@pytest.mark.parametrize("rules", RULES)
def test_what_is_written_is_what_a_walk_writes(rules: LengthRules) -> None:
    histories = everything(rules)
    possible = histories[rules.possible(histories)]
    alphabet = StopAlphabet("abc"[: rules.num_letters], rules)
    designs = [walked(rules, history) for history in possible.tolist()]
    strings = [design[0] for design in designs if design is not None]
    assert alphabet.decode(possible) == strings
    assert alphabet.decode(rules.written(possible)) == strings
    within = [rules.min_length <= len(string) <= rules.max_length for string in strings]
    assert rules.alive(possible).tolist() == within
    assert alphabet.decode(rules.canonical(possible)) == [
        string if kept else "" for string, kept in zip(strings, within, strict=True)
    ]
    # the canonical form is itself a history without edits, and its own canonical form
    plain = rules.canonical(possible)
    assert int(plain.max()) <= rules.stop
    assert torch.equal(rules.canonical(plain), plain)


@pytest.mark.parametrize("rules", RULES)
def test_a_prefix_has_hope_as_long_as_some_history_within_the_bounds_begins_with_it(rules: LengthRules) -> None:
    histories = everything(rules)
    good = histories[rules.alive(histories)]
    assert rules.alive(histories[:1, :0]).tolist() == [True]
    for time in range(1, rules.max_length + 1):
        beginnings = set(map(tuple, good[:, :time].tolist()))
        prefixes = histories[:, :time].unique(dim=0)
        assert rules.alive(prefixes).tolist() == [tuple(prefix) in beginnings for prefix in prefixes.tolist()]


def test_long_histories_have_finite_shares() -> None:
    rules = LengthRules(4, 5, 200, deletion=1e-3, duplication=1e-3)
    gap, double = rules.stop + 1, rules.first_double
    rows = torch.zeros(3, 200, dtype=torch.int64)
    rows[0, 10:] = rules.stop
    rows[1] = gap
    rows[2, ::2] = double
    shares = rules.log_shares(rows)
    assert bool(torch.isfinite(shares).all())
    assert bool((shares <= 0).all())
    # ten equal letters without edits are by far the likeliest of their histories
    assert -0.1 < float(shares[0]) < 0.0
    assert float(shares[2]) == pytest.approx(math.log(1e-30))  # it passes the bound and goes on


def test_there_are_as_many_designs_as_strings_within_the_bounds() -> None:
    assert PLAIN.num_designs == 4 + 8 + 16
    assert LengthRules(4, 1, 1).num_designs == 4
