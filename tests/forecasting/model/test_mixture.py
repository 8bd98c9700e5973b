"""Mixtures of paths: which paths are replaced, and what they keep."""

import numpy as np

from stochflow.forecasting.model.mixture import evenly_spaced, mix_marginals, mix_paths


def test_a_share_of_the_paths_gives_way_evenly_spaced() -> None:
    assert evenly_spaced(10, 0.5).tolist() == [1, 3, 5, 7, 9]
    assert evenly_spaced(8, 0.25).tolist() == [3, 7]
    assert evenly_spaced(5, 0.0).tolist() == []
    paths, others = np.zeros((2, 8, 3)), np.arange(2 * 4 * 3.0).reshape(2, 4, 3) + 1
    both = mix_paths(paths, others, 0.25)
    assert (both[:, [3, 7]] == others[:, :2]).all()
    assert (np.delete(both, [3, 7], axis=1) == 0).all()
    assert (paths == 0).all()


def test_a_share_of_the_paths_takes_the_values_and_the_others_stay() -> None:
    paths = np.random.default_rng(0).standard_normal((400, 3))
    values = np.array([[100.0, 200.0, 300.0]])
    result = mix_marginals(paths, values, 0.25)
    taken = result[:, 0] == 100
    assert taken.sum() == 100
    np.testing.assert_array_equal(result[taken], np.repeat(values, 100, axis=0))
    np.testing.assert_array_equal(result[~taken], paths[~taken])


def test_paths_that_take_values_keep_their_rank_at_every_step() -> None:
    paths = np.random.default_rng(1).standard_normal((8, 2))
    result = mix_marginals(paths, np.linspace(50, 60, 21)[:, None] * [1.0, -1.0] + [0.0, 200.0], 0.5)
    taken = np.flatnonzero(result[:, 0] > 40)
    assert len(taken) == 4
    for step in range(2):
        np.testing.assert_array_equal(np.argsort(result[taken, step]), np.argsort(paths[taken, step]))


def test_beyond_the_other_horizon_paths_keep_their_values() -> None:
    paths = np.random.default_rng(2).standard_normal((10, 5))
    np.testing.assert_array_equal(mix_marginals(paths, np.full((4, 2), 9.0), 0.5)[:, 2:], paths[:, 2:])
    np.testing.assert_array_equal(mix_marginals(paths, np.full((4, 2), 9.0), 0.0), paths)
