"""The context encoder: absent elements are as good as never given, places and times count, nothing becomes NaN."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.models.context import ContextConfig, ContextEncoder, log_spaced_frequencies, sinusoids

BATCH, TIME, WIDTH, FEATURES, TOKENS = 3, 6, 8, 2, 5
POSITIONS = ["learned", "sinusoidal", "continuous", "none"]


def make_encoder(seed: int = 0, **settings: Any) -> ContextEncoder:
    defaults = {
        "width": WIDTH,
        "heads": 2,
        "layers": 2,
        "max_length": 12,
        "num_features": FEATURES,
        "num_tokens": TOKENS,
    }
    encoder = ContextEncoder(ContextConfig(**(defaults | settings)))
    encoder.initialise(torch.Generator().manual_seed(seed))
    return encoder.double()


@pytest.fixture
def inputs(generator: torch.Generator) -> dict[str, Tensor]:
    return {
        "features": torch.randn(BATCH, TIME, FEATURES, generator=generator, dtype=torch.float64),
        "tokens": torch.randint(TOKENS, (BATCH, TIME), generator=generator),
        "times": torch.rand(BATCH, TIME, generator=generator, dtype=torch.float64).cumsum(dim=-1),
        "present": torch.ones(BATCH, TIME, dtype=torch.bool),
    }


@pytest.mark.parametrize("position", POSITIONS)
def test_padded_equals_unpadded(position: str, inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position=position)
    alone = encoder(**inputs)
    padding = {
        "features": torch.full((BATCH, 3, FEATURES), torch.nan, dtype=torch.float64),
        "tokens": torch.full((BATCH, 3), TOKENS - 1),
        "times": torch.full((BATCH, 3), torch.inf, dtype=torch.float64),
        "present": torch.zeros(BATCH, 3, dtype=torch.bool),
    }
    padded = encoder(**{name: torch.cat([inputs[name], padding[name]], dim=1) for name in inputs})
    torch.testing.assert_close(padded.memory[:, :TIME], alone.memory)
    torch.testing.assert_close(padded.pooled, alone.pooled)
    assert not padded.memory[:, TIME:].any()


def test_rows_of_one_batch_may_have_different_lengths(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position="sinusoidal")
    lengths = [6, 1, 4]
    present = torch.arange(TIME) < torch.tensor(lengths).unsqueeze(-1)
    together = encoder(**inputs | {"present": present})
    for row, length in enumerate(lengths):
        alone = encoder(**{name: value[row : row + 1, :length] for name, value in inputs.items()})
        torch.testing.assert_close(together.pooled[row], alone.pooled[0])


def test_without_positions_a_context_is_a_set(inputs: dict[str, Tensor], generator: torch.Generator) -> None:
    order = torch.randperm(TIME, generator=generator)
    encoder = make_encoder(position="none")
    here, there = encoder(**inputs), encoder(**{name: value[:, order] for name, value in inputs.items()})
    torch.testing.assert_close(there.memory, here.memory[:, order])
    torch.testing.assert_close(there.pooled, here.pooled)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_with_positions_the_order_matters(position: str, inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position=position)
    reversed_inputs = {name: value.flip(1) for name, value in inputs.items()}
    assert (encoder(**reversed_inputs).pooled - encoder(**inputs).pooled).abs().max().item() > 1e-3


def test_irregular_times_matter_only_to_the_continuous_kind(inputs: dict[str, Tensor]) -> None:
    stretched = inputs | {"times": inputs["times"] * torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 3.0])}
    for position in POSITIONS:
        encoder = make_encoder(position=position)
        moved = (encoder(**stretched).pooled - encoder(**inputs).pooled).abs().max().item()
        assert moved > 1e-3 if position == "continuous" else moved == 0.0


def test_continuous_positions_do_not_see_the_index(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position="continuous")
    reversed_inputs = {name: value.flip(1) for name, value in inputs.items()}
    torch.testing.assert_close(encoder(**reversed_inputs).pooled, encoder(**inputs).pooled)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_fully_absent_row_is_zero_with_a_finite_gradient(position: str, inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position=position).float()
    present = inputs["present"].clone()
    present[1] = False
    given = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    encoded = encoder(**given | {"present": present})
    assert not encoded.pooled[1].any()
    assert encoded.pooled[0].any()
    encoded.pooled.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_an_empty_context_is_encoded_as_nothing() -> None:
    encoded = make_encoder(num_tokens=0)(features=torch.empty(2, 0, FEATURES, dtype=torch.float64))
    assert encoded.memory.shape == (2, 0, WIDTH)
    assert torch.equal(encoded.pooled, torch.zeros(2, WIDTH, dtype=torch.float64))


def test_every_element_is_seen_by_every_other(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(layers=1)
    changed = inputs | {"tokens": inputs["tokens"].clone()}
    changed["tokens"][:, 2] = (changed["tokens"][:, 2] + 1) % TOKENS
    moved = (encoder(**changed).memory - encoder(**inputs).memory).abs().amax(dim=-1)
    assert (moved > 1e-6).all()


def test_tokens_and_features_are_summed(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(layers=0)
    encoded = encoder(features=inputs["features"], tokens=inputs["tokens"])
    total = encoder.feature_embedding(inputs["features"]) + encoder.token_embedding(inputs["tokens"])
    torch.testing.assert_close(encoded.memory, encoder.norm(total))


def test_gradients_are_those_of_finite_differences(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(position="continuous")
    features, times = inputs["features"][:1, :3].clone(), inputs["times"][:1, :3].clone()
    present = torch.tensor([[True, True, False]])

    def pooled(features: Tensor, times: Tensor) -> Tensor:
        return encoder(features, inputs["tokens"][:1, :3], times, present).pooled

    assert torch.autograd.gradcheck(pooled, (features.requires_grad_(), times.requires_grad_()))


def test_dropout_draws_from_the_generator_and_stops_in_evaluation(inputs: dict[str, Tensor]) -> None:
    encoder = make_encoder(dropout=0.5)

    def pooled(seed: int) -> Tensor:
        return encoder(**inputs, generator=torch.Generator().manual_seed(seed)).pooled

    assert torch.equal(pooled(0), pooled(0))
    assert not torch.equal(pooled(0), pooled(1))
    with pytest.raises(ValueError, match="pass a generator or call eval"):
        encoder(**inputs)
    plain = make_encoder(dropout=0.0)
    torch.testing.assert_close(encoder.eval()(**inputs).pooled, plain(**inputs).pooled)


def test_sinusoids_at_known_angles() -> None:
    waves = sinusoids(torch.tensor([0.0, torch.pi / 2]), torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(waves, torch.tensor([[0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, -1.0]]))
    torch.testing.assert_close(log_spaced_frequencies(3), torch.tensor([1.0, 1e-2, 1e-4]))


def test_the_same_seed_makes_the_same_encoder_whatever_the_global_state() -> None:
    torch.manual_seed(1)
    first = make_encoder(position="learned").state_dict()
    torch.manual_seed(2)
    again = make_encoder(position="learned").state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = make_encoder(seed=1, position="learned").state_dict()
    same = {name for name in first if torch.equal(first[name], other[name])}
    assert all(name.endswith("bias") or "norm" in name for name in same)


def test_a_context_beyond_the_learned_positions_is_refused() -> None:
    encoder = make_encoder(position="learned", max_length=4, num_tokens=0)
    with pytest.raises(ConfigError, match=r"5 elements .* end at 4; raise max_length"):
        encoder(features=torch.zeros(1, 5, FEATURES, dtype=torch.float64))


def test_what_the_encoder_was_not_built_for_is_refused(inputs: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="built with tokens; set num_tokens"):
        make_encoder()(features=inputs["features"])
    with pytest.raises(ValueError, match="built without features; set num_features"):
        make_encoder(num_features=0)(features=inputs["features"], tokens=inputs["tokens"])
    with pytest.raises(ValueError, match="pass times"):
        make_encoder(position="continuous")(inputs["features"], inputs["tokens"])
    with pytest.raises(ValueError, match="needs features, tokens or both"):
        make_encoder()()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"width": 6, "heads": 4, "num_tokens": 2}, "multiple of heads"),
        ({"width": 3, "heads": 1, "num_tokens": 2}, "even"),
        ({"width": 8, "heads": 2}, "nothing to encode"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings: dict[str, int], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ContextConfig(**settings)
