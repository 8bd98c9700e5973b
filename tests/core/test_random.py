"""One seed makes several streams that do not disturb each other."""

import pytest
import torch
from torch import Tensor

from stochflow.core.random import STREAMS, RandomStreams


def draws(generators: RandomStreams, name: str, num_draws: int = 4) -> Tensor:
    return torch.rand(num_draws, generator=generators[name], dtype=torch.float64)


@pytest.mark.parametrize("name", STREAMS)
def test_the_same_seed_gives_the_same_numbers(name: str) -> None:
    assert torch.equal(draws(RandomStreams(7), name), draws(RandomStreams(7), name))


def test_no_two_streams_of_neighbouring_seeds_agree() -> None:
    first_draws = [draws(RandomStreams(seed), name)[0].item() for seed in range(20) for name in STREAMS]
    assert len(set(first_draws)) == 20 * len(STREAMS)


def test_drawing_from_one_stream_leaves_the_others_where_they_were() -> None:
    disturbed, calm = RandomStreams(3), RandomStreams(3)
    draws(disturbed, "evaluation", 1000)
    for name in set(STREAMS) - {"evaluation"}:
        assert torch.equal(draws(disturbed, name), draws(calm, name))


def test_a_restored_state_continues_every_stream_where_it_was_saved() -> None:
    generators = RandomStreams(5)
    for name in STREAMS:
        draws(generators, name, 3)
    saved = generators.state_dict()
    expected = {name: draws(generators, name) for name in STREAMS}  # must not move what was saved
    resumed = RandomStreams(99)
    resumed.load_state_dict(saved)
    for name in STREAMS:
        assert torch.equal(draws(resumed, name), expected[name])


def test_a_saved_state_survives_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("states") / "generators.pt"
    generators = RandomStreams(5)
    torch.save(generators.state_dict(), path)
    expected = draws(generators, "policy")
    resumed = RandomStreams(0)
    resumed.load_state_dict(torch.load(path, weights_only=True))
    assert torch.equal(draws(resumed, "policy"), expected)


def test_the_global_random_state_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    first = draws(RandomStreams(0), "policy")
    before = torch.get_rng_state()
    torch.manual_seed(2)
    second = draws(RandomStreams(0), "policy")
    assert torch.equal(first, second)
    torch.manual_seed(1)
    draws(RandomStreams(0), "policy")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", [0, -1, 2**31, 2**62, 2**70])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert draws(RandomStreams(seed), "init").shape == (4,)


def test_an_unknown_stream_is_an_error() -> None:
    with pytest.raises(KeyError, match="typo"):
        RandomStreams(0)["typo"]
