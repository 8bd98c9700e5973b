"""Support sets and what the encoder is told about them."""

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.training.conditional.support import Support, draw_support, kmer_counts, num_features, support_features


def test_a_support_holds_distinct_sequences_with_their_scores(tfbind8: TFBind8, generator: torch.Generator) -> None:
    support = draw_support(tfbind8, 300, generator)
    assert len(support.tokens.unique(dim=0)) == 300
    assert torch.equal(support.scores, tfbind8.score(support.tokens))
    again = draw_support(tfbind8, 300, torch.Generator().manual_seed(0))
    assert torch.equal(support.tokens, again.tokens)
    assert not torch.equal(support.tokens, draw_support(tfbind8, 300, generator).tokens)


@pytest.mark.parametrize("num", [0, 4**8 + 1])
def test_a_support_that_does_not_exist_is_refused(num: int, tfbind8: TFBind8, generator: torch.Generator) -> None:
    with pytest.raises(ConfigError, match=f"support of {num} sequences cannot be drawn from tfbind8"):
        draw_support(tfbind8, num, generator)


def test_kmers_of_a_known_word() -> None:
    counts = kmer_counts(torch.tensor([0, 1, 0, 1, 0]), num_tokens=2)
    by_position, threes, fours = counts.tensor_split([10, 18])
    assert by_position.tolist() == [1, 0, 0, 1, 1, 0, 0, 1, 1, 0]
    # ABA twice (code 010 = 2) and BAB once (code 101 = 5); ABAB (5) and BABA (10)
    assert threes.tolist() == [0, 0, 2, 0, 0, 1, 0, 0]
    assert fours.nonzero().squeeze(-1).tolist() == [5, 10]


def test_the_mean_of_the_features_is_how_kmers_go_with_scores(generator: torch.Generator) -> None:
    tokens = torch.randint(4, (20_000, 8), generator=generator)
    scores = 0.3 + 0.1 * (tokens[:, 0] == 2).double()
    means = support_features(Support(tokens, scores), 4).mean(dim=0)
    assert means.shape == (num_features(4, 8),)
    # a quarter of the words start with letter 2 and lie √3 standard deviations above the mean
    assert means[2].item() == pytest.approx(0.25 * 3**0.5, abs=0.02)
    assert means[4:32].abs().max().item() < 0.03
    assert means[-2:].tolist() == pytest.approx([0.325, 0.1 * 0.1875**0.5], abs=2e-3)


def test_scores_that_are_all_equal_give_finite_features() -> None:
    features = support_features(Support(torch.zeros(3, 8, dtype=torch.int64), torch.ones(3, dtype=torch.float64)), 4)
    assert torch.isfinite(features).all()
    assert not features[:, :-2].any()


def test_an_alphabet_too_large_for_kmers_keeps_its_letters() -> None:
    assert kmer_counts(torch.zeros(2, 6, dtype=torch.int64), 20).shape == (2, 120)
    assert num_features(20, 6) == 122
