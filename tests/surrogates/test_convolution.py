"""Convolutional networks learn what a motif is worth wherever it stands."""

import torch

from stochflow.surrogates.convolution import ConvolutionEnsemble
from tests.surrogates.test_network_ensemble import LENGTH, K, designs


def test_a_motif_is_known_where_it_was_never_seen(generator: torch.Generator) -> None:
    tokens, scores = designs(400, [0, 4, 8], generator)
    others, truth = designs(200, [2, 6, 9], generator)
    surrogate = ConvolutionEnsemble(K, LENGTH)
    surrogate.fit(tokens, scores)
    assert float((surrogate.predict_mean(others) - truth).square().mean()) < 0.4 * float(truth.var())
    assert surrogate.leave_one_out().r_squared > 0.5
