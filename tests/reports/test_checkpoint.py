"""What the checkpoint says agrees with what the run itself has written down."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stochflow import api
from stochflow.reports.checkpoint import exact_results, random_subset
from stochflow.reports.reader import read_run
from stochflow.truth.prefix_tree import infeasible_share, kl_to_target

TINY = ("model.width=16", "optimiser.batch_size=16", "optimiser.updates=1", "evaluation.num_samples=20")


def test_the_landscape_has_the_divergence_of_the_summary(run: Path) -> None:
    record = read_run(run)
    distribution = exact_results(record).distribution
    assert distribution is not None
    assert record.summary is not None
    log_rewards = torch.from_numpy(distribution.log_rewards)
    assert kl_to_target(torch.from_numpy(distribution.log_probs), log_rewards) == pytest.approx(record.summary.kl)
    assert kl_to_target(torch.from_numpy(distribution.attainable), log_rewards) == pytest.approx(record.summary.min_kl)
    assert distribution.log_z == pytest.approx(record.summary.log_z_true)
    assert distribution.unbalanced == infeasible_share(log_rewards, 0.25, 4)


def test_the_learned_channel_lies_between_ignorance_and_the_truth(run: Path) -> None:
    channels = exact_results(read_run(run)).channels
    assert channels is not None
    assert channels.learned is not None
    assert channels.truth.shape == channels.learned.shape == (8, 4, 4)
    np.testing.assert_allclose(channels.learned.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(channels.truth[0].diagonal(), 0.8125)
    # three steps of fitting have moved it away from uniform, towards the truth
    before = np.abs(0.25 - channels.truth).mean()
    assert np.abs(channels.learned - channels.truth).mean() < before


@pytest.mark.parametrize("depends_on", ["intention", "state"])
def test_a_known_channel_is_the_truth_and_a_learned_one_has_a_matrix_per_position(
    depends_on: str, tmp_path: Path
) -> None:
    settings = (*TINY, f"dynamics.depends_on={depends_on}")
    kinds = ("known", "learned")
    for kind in kinds:
        api.train(steps=1, settings=(*settings, f"dynamics.kind={kind}"), device="cpu", out=tmp_path / kind)
    known, learned = (exact_results(read_run(tmp_path / kind)).channels for kind in kinds)
    assert known is not None
    assert learned is not None
    assert known.is_known
    assert not learned.is_known
    np.testing.assert_allclose(known.learned, known.truth, rtol=1e-6)
    assert learned.learned is not None
    assert learned.learned.shape == (8, 4, 4)


def test_a_method_that_never_asks_has_no_learned_channel(tmp_path: Path) -> None:
    api.train(method="gfn-tb", steps=1, settings=TINY, device="cpu", out=tmp_path / "run")
    record = read_run(tmp_path / "run")
    channels = exact_results(record).channels
    assert channels is not None
    assert channels.learned is None
    assert channels.truth.shape == (8, 4, 4)
    assert record.summary is not None
    assert record.summary.dynamics_ce is None
    assert record.summary.dynamics_ce_floor > 0
    api.report(tmp_path / "run", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "nothing was learned of it" in page
    assert "Learned channel" not in page


def test_a_channel_without_an_inverse_has_no_map_of_its_reach(tmp_path: Path) -> None:
    matrix = tmp_path / "flat.csv"
    matrix.write_text("0.25,0.25,0.25,0.25\n" * 4)
    api.train(noise=str(matrix), steps=1, settings=TINY, device="cpu", out=tmp_path / "run")
    distribution = exact_results(read_run(tmp_path / "run")).distribution
    assert distribution is not None
    assert distribution.unbalanced is None


def test_a_run_whose_reference_file_and_device_are_gone_can_be_examined(run: Path) -> None:
    config = (run / "config.yaml").read_text().replace("reference: null", "reference: gone.csv")
    (run / "config.yaml").write_text(config.replace("device: cpu", "device: cuda:9"))
    results = exact_results(read_run(run))
    assert results.problems == ()
    assert results.distribution is not None


@pytest.mark.parametrize("damage", ["checkpoint", "task", "width"])
def test_a_run_that_cannot_be_restored_says_why(run: Path, damage: str) -> None:
    if damage == "checkpoint":
        for path in (run / "checkpoint").glob("*.safetensors"):
            path.write_bytes(b"nothing")
    else:
        change = ("task: tfbind8", "task: chess") if damage == "task" else ("width: 16", "width: 32")
        (run / "config.yaml").write_text((run / "config.yaml").read_text().replace(*change))
    results = exact_results(read_run(run))
    assert results.distribution is None
    (problem,) = results.problems
    assert problem.startswith("The sampler cannot be restored, so nothing is computed from it: ")


def test_thinning_keeps_different_sequences_and_always_the_same(run: Path) -> None:
    distribution = exact_results(read_run(run)).distribution
    assert distribution is not None
    kept = random_subset(distribution, 2000)
    assert len(np.unique(kept)) == 2000
    np.testing.assert_array_equal(kept, random_subset(distribution, 2000))
    assert len(random_subset(distribution, 10**6)) == 4**8
