"""The channel of histories, entry by entry."""

import pytest
import torch

from stochflow.environments.channels import confusion, dna_synthesis, noiseless, positional_slip, uniform_slip
from stochflow.environments.sequences.variable_length import EditChannel, LengthRules

RULES = LengthRules(2, 1, 3, deletion=0.2, duplication=0.1)


def test_letters_are_deleted_doubled_or_garbled_and_the_stop_is_obeyed() -> None:
    channel = EditChannel(confusion([[0.9, 0.1], [0.3, 0.7]]), RULES)
    # A, B, stop, gap, AA, BB
    expected = [
        [0.7 * 0.9, 0.7 * 0.1, 0.0, 0.2, 0.1 * 0.9, 0.1 * 0.1],
        [0.7 * 0.3, 0.7 * 0.7, 0.0, 0.2, 0.1 * 0.3, 0.1 * 0.7],
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    ]
    torch.testing.assert_close(channel.matrix(0)[:3], torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(channel.matrix(2)[3:], torch.eye(6, dtype=torch.float64)[3:])


@pytest.mark.parametrize(
    "letters", [noiseless(4), uniform_slip(4, 0.3), dna_synthesis(0.1), positional_slip(4, [0.1, 0.5, 0.2])]
)
@pytest.mark.parametrize("edits", [(0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.4, 0.5)])
def test_every_kind_of_channel_can_be_extended(letters: object, edits: tuple[float, float]) -> None:
    rules = LengthRules(4, 1, 3, *edits)
    channel = EditChannel(letters, rules)  # type: ignore[arg-type]
    for position in range(3):
        matrix = channel.matrix(position)
        torch.testing.assert_close(matrix.sum(dim=-1), torch.ones(rules.num_tokens, dtype=torch.float64))
        # what P̂ takes for impossible is impossible
        assert not bool(matrix[~rules.outcomes].any())
        assert bool((matrix[rules.stop] == torch.eye(rules.num_tokens)[rules.stop]).all())


def test_its_noise_is_that_of_the_letters_with_the_edits() -> None:
    assert EditChannel(uniform_slip(2, 0.25), LengthRules(2, 1, 3)).noise == 0.25
    assert EditChannel(uniform_slip(2, 0.25), RULES).noise == "0.25+deletion:0.2+duplication:0.1"
    assert EditChannel(uniform_slip(2, 0.25), RULES).slip is None
