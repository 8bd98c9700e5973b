"""The measured tables: known values, its symmetry, and refusal of a table that is not the published one."""

import zlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.registry import FACTORS
from stochflow.environments.sequences import packed
from stochflow.environments.sequences import tfbind8 as module
from stochflow.environments.sequences.tfbind8 import (
    TFBind8,
    canonical_codes,
    pack_table,
    read_e_scores,
    reverse_complement_codes,
    table_name,
)

TABLE_PATH = resources.files("stochflow.environments.sequences") / "data" / table_name("SIX6")


def scores_of(task: TFBind8, *sequences: str) -> list[float]:
    return task.score(task.alphabet.encode(sequences)).tolist()


def test_tokens_stand_for_acgt_in_this_order(tfbind8: TFBind8) -> None:
    assert tfbind8.alphabet.letters == "ACGT"
    assert tfbind8.length == 8
    assert tfbind8.all_scores.shape == (4**8,)


def test_e_scores_span_the_published_range() -> None:
    e_scores = read_e_scores()
    assert (e_scores.min(), e_scores.max()) == (-0.47907, 0.49105)


def test_scores_are_scaled_to_the_unit_interval(tfbind8: TFBind8) -> None:
    scores = tfbind8.all_scores
    assert (scores.min().item(), scores.max().item()) == (0.0, 1.0)
    assert scores.mean().item() == pytest.approx(0.4638, abs=5e-5)
    assert int((scores > 0.9).sum()) == 934
    assert int((scores > 0.95).sum()) == 294


def test_the_best_binders_are_the_published_ones(tfbind8: TFBind8) -> None:
    best = tfbind8.all_scores.argsort(descending=True)[:3]
    names = tfbind8.alphabet.decode(tfbind8.all_sequences[best])
    assert set(names[:2]) == {"AGGTATCA", "TGATACCT"}
    assert names[2] == "TGATATCA"
    assert scores_of(tfbind8, "AGGTATCA", "TGATACCT") == [1.0, 1.0]
    assert scores_of(tfbind8, "TGATATCA") == pytest.approx([0.9998], abs=5e-5)


def test_a_score_is_looked_up_under_the_sequence_itself(tfbind8: TFBind8, generator: torch.Generator) -> None:
    rows = torch.randint(4**8, (500,), generator=generator)
    assert torch.equal(tfbind8.score(tfbind8.all_sequences[rows]), tfbind8.all_scores[rows])


def test_reverse_complements_bind_alike(tfbind8: TFBind8) -> None:
    # 3 − token is the complement in the order ACGT; flipping reverses
    assert torch.equal(tfbind8.score(3 - tfbind8.all_sequences.flip(-1)), tfbind8.all_scores)


def test_plain_reversal_is_no_symmetry(tfbind8: TFBind8) -> None:
    assert not torch.allclose(tfbind8.score(tfbind8.all_sequences.flip(-1)), tfbind8.all_scores, atol=0.3)


def test_reverse_complement_codes_of_known_words(tfbind8: TFBind8) -> None:
    words = ["AAAAAAAA", "AGGTATCA", "TGATATCA"]
    powers = 4 ** np.arange(7, -1, -1)
    codes = (tfbind8.alphabet.encode(words).numpy() * powers).sum(axis=1)
    partners = tfbind8.alphabet.decode(tfbind8.all_sequences[torch.from_numpy(reverse_complement_codes(codes))])
    assert partners == ["TTTTTTTT", "TGATACCT", "TGATATCA"]


def test_half_of_the_words_and_all_palindromes_are_canonical() -> None:
    codes = canonical_codes()
    # 4^4 words are their own reverse complement
    assert len(codes) == (4**8 + 4**4) // 2
    assert len(np.union1d(codes, reverse_complement_codes(codes))) == 4**8


def test_packing_the_e_scores_gives_back_the_shipped_table() -> None:
    repacked = pack_table(read_e_scores()[canonical_codes()])
    assert zlib.decompress(repacked) == zlib.decompress(TABLE_PATH.read_bytes())


def test_the_table_is_small_enough_to_ship() -> None:
    assert len(TABLE_PATH.read_bytes()) < 150_000


def test_a_missing_table_is_a_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "table_name", lambda factor, replicate: "no_such_table.bin")
    with pytest.raises(DataError, match=r"no_such_table\.bin cannot be read .* reinstall"):
        TFBind8()


def flip_one_bit(packed: bytes) -> bytes:
    return packed[:1000] + bytes([packed[1000] ^ 1]) + packed[1001:]


def truncate(packed: bytes) -> bytes:
    return packed[:-1]


def other_numbers(packed: bytes) -> bytes:
    """A well-formed table of the right size with one E-score changed in its last decimal."""
    planes = bytearray(zlib.decompress(packed))
    planes[0] ^= 1
    return zlib.compress(bytes(planes), level=9)


@pytest.mark.parametrize("damage", [flip_one_bit, truncate, other_numbers, lambda packed: b""])
def test_a_damaged_table_is_a_data_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / table_name("SIX6")).write_bytes(damage(TABLE_PATH.read_bytes()))
    packed.checksums()  # as they are shipped
    monkeypatch.setattr(packed.resources, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match=r"is damaged .*rebuild"):
        TFBind8()


OTHERS = sorted(set(FACTORS) - {"SIX6"})
# the core that is known to be bound by the factor's family, and the E-scores that its table spans
KNOWN = {
    "ARX": ("TAATT", (-0.47351, 0.49840)),
    "HOXB7": ("TAAT", (-0.50000, 0.48403)),
    "HOXC4": ("TAATT", (-0.49277, 0.49545)),
    "ISX": ("TAATT", (-0.44102, 0.49531)),
    "MSX2": ("TAATT", (-0.47973, 0.49500)),
    "PAX4": ("TAATT", (-0.48200, 0.49550)),
    "PAX6": (None, (-0.49791, 0.47060)),
    "PBX4": (None, (-0.50000, 0.48643)),
    "PITX2": ("TAATCC", (-0.46285, 0.49726)),
    "VAX2": ("TAATT", (-0.48042, 0.49821)),
    "ZNF655": (None, (-0.50000, 0.49831)),
}


@pytest.mark.parametrize("factor", OTHERS)
def test_the_other_factors_span_their_published_range(factor: str) -> None:
    e_scores = read_e_scores(factor)
    assert (e_scores.min(), e_scores.max()) == KNOWN[factor][1]
    path = resources.files("stochflow.environments.sequences") / "data" / table_name(factor)
    assert zlib.decompress(pack_table(e_scores[canonical_codes()], factor)) == zlib.decompress(path.read_bytes())
    assert len(path.read_bytes()) < 75_000


@pytest.mark.parametrize("factor", [factor for factor in OTHERS if KNOWN[factor][0]])
def test_homeodomains_bind_their_family_core(factor: str) -> None:
    task, core = TFBind8(factor), KNOWN[factor][0]
    best = task.alphabet.decode(task.all_sequences[task.all_scores.argsort(descending=True)[:40]])
    complement = core[::-1].translate(str.maketrans("ACGT", "TGCA"))
    assert sum(core in word or complement in word for word in best) >= 30


def test_every_factor_is_a_landscape_of_its_own() -> None:
    scores = np.stack([read_e_scores(factor) for factor in FACTORS])
    correlations = np.corrcoef(scores)[~np.eye(len(FACTORS), dtype=bool)]
    assert correlations.min() > 0.3
    assert correlations.max() < 0.95


@pytest.mark.parametrize("factor", FACTORS)
def test_replicates_agree_by_nine_tenths_and_are_not_the_same(factor: str) -> None:
    first, second = read_e_scores(factor), read_e_scores(factor, replicate=2)
    assert 0.9 <= np.corrcoef(first[canonical_codes()], second[canonical_codes()])[0, 1] < 0.99
    path = resources.files("stochflow.environments.sequences") / "data" / table_name(factor, 2)
    assert zlib.decompress(pack_table(second[canonical_codes()], factor, 2)) == zlib.decompress(path.read_bytes())


def test_replicate_one_is_the_score_and_replicate_two_has_its_scale(tfbind8: TFBind8) -> None:
    both = tfbind8.replicates(tfbind8.all_sequences)
    assert torch.equal(both[:, 0], tfbind8.all_scores)
    second = read_e_scores("SIX6", replicate=2)
    expected = torch.from_numpy((second + 0.47907) / (0.49105 + 0.47907))
    torch.testing.assert_close(both[:, 1], expected.clamp_min(0.0))


def test_an_unknown_factor_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="unknown transcription factor 'FOO'; choose one of: SIX6, ARX"):
        TFBind8("FOO")
