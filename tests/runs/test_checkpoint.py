"""A checkpoint is whole or absent, and damage is noticed."""

import hashlib
import json
import os
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as tensors_from_bytes
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.runs.checkpoint import FORMAT, NUM_KEPT, load_checkpoint, save_checkpoint


def state(step: int) -> dict[str, Tensor]:
    """Tensors of every kind that training keeps, recognisable by step."""
    return {
        "weights": torch.arange(12.0).reshape(3, 4) + step,
        "scores": torch.tensor([step + 1 / 3], dtype=torch.float64),
        "generator": torch.tensor([step % 256, 255], dtype=torch.uint8),
        "valid": torch.tensor([True, False]),
        "empty": torch.empty(0, 4, dtype=torch.int64),
        "counter": torch.tensor(step),
    }


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def file(folder: Path, step: int, suffix: str = "safetensors") -> Path:
    return folder / f"step-{step:09d}.{suffix}"


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints, of steps 1 and 2."""
    path = tmp_path / "checkpoint"
    for step in (1, 2):
        save_checkpoint(path, state(step), step)
    return path


def test_a_checkpoint_comes_back_as_it_was(folder: Path) -> None:
    assert_same(load_checkpoint(folder), state(2))


def test_the_last_two_checkpoints_are_kept(folder: Path) -> None:
    for step in (3, 10, 200):
        save_checkpoint(folder, state(step), step)
    assert NUM_KEPT == 2
    assert sorted(os.listdir(folder)) == sorted(
        file(folder, step, suffix).name for step in (10, 200) for suffix in ("json", "safetensors")
    )
    assert_same(load_checkpoint(folder), state(200))


def test_the_same_step_saved_again_replaces_itself(folder: Path) -> None:
    save_checkpoint(folder, state(7), 2)
    assert len(os.listdir(folder)) == 4
    assert_same(load_checkpoint(folder), state(7))


def test_what_is_saved_does_not_change_with_the_tensors_afterwards(tmp_path: Path) -> None:
    table = torch.zeros(4, 4)
    views = {"column": table[:, 1], "same": table[:, 1], "parameter": torch.nn.Parameter(torch.ones(2))}
    save_checkpoint(tmp_path, views, 1)  # shared and strided memory, and a gradient
    table += 1
    assert torch.equal(load_checkpoint(tmp_path)["same"], torch.zeros(4))
    assert torch.equal(load_checkpoint(tmp_path)["parameter"], torch.ones(2))


def test_files_are_safetensors_and_json_and_nothing_else(folder: Path) -> None:
    for step in (1, 2):
        data = file(folder, step).read_bytes()
        assert_same(tensors_from_bytes(data), state(step))
        manifest = json.loads(file(folder, step, "json").read_text(encoding="utf-8"))
        assert manifest == {"format": FORMAT, "step": step, "sha256": hashlib.sha256(data).hexdigest()}
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("position", [0, 9, -1])
def test_a_flipped_bit_in_the_newest_falls_back_to_the_one_before_with_a_warning(folder: Path, position: int) -> None:
    flip_bit(file(folder, 2), position)
    with pytest.warns(UserWarning, match="step-000000002 .* is damaged .*going on from step-000000001"):
        found = load_checkpoint(folder)
    assert_same(found, state(1))


def test_a_truncated_newest_falls_back_to_the_one_before(folder: Path) -> None:
    for length in (0, 7, file(folder, 2).stat().st_size - 1):
        os.truncate(file(folder, 2), length)
        with pytest.warns(UserWarning, match="damaged"):
            assert_same(load_checkpoint(folder), state(1))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"3", b"{}", b'{"format": 1}', b'{"sha256": "x"}', b"\xff\xfe"]
)
def test_a_damaged_json_falls_back_to_the_one_before(folder: Path, content: bytes) -> None:
    file(folder, 2, "json").write_bytes(content)
    with pytest.warns(UserWarning, match="step-000000002 .* is incomplete; going on from step-000000001"):
        assert_same(load_checkpoint(folder), state(1))


def test_tensors_without_their_json_are_no_checkpoint(folder: Path) -> None:
    file(folder, 2, "json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is wrong: the machine stopped before the checkpoint was there
        assert_same(load_checkpoint(folder), state(1))


def test_a_json_without_its_tensors_falls_back_to_the_one_before(folder: Path) -> None:
    file(folder, 2).unlink()
    with pytest.warns(UserWarning, match="incomplete"):
        assert_same(load_checkpoint(folder), state(1))


def test_two_damaged_checkpoints_are_an_error_with_a_remedy(folder: Path) -> None:
    flip_bit(file(folder, 1), 100)
    os.truncate(file(folder, 2), 100)
    with pytest.raises(DataError, match=r"step-000000002 .* is damaged .*, and no other is left; start again with"):
        load_checkpoint(folder)


def test_no_checkpoint_at_all_is_an_error_with_a_remedy(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no checkpoint; train it first, or start again with --overwrite"):
        load_checkpoint(tmp_path / "missing")
    for step in (1, 2):
        file(folder, step, "json").unlink()
    with pytest.raises(DataError, match="holds no checkpoint"):
        load_checkpoint(folder)


def test_another_format_is_refused_and_both_numbers_are_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state(1), 1)
    manifest = json.loads(file(tmp_path, 1, "json").read_text(encoding="utf-8"))
    file(tmp_path, 1, "json").write_text(json.dumps(manifest | {"format": 99}), encoding="utf-8")
    with pytest.raises(DataError, match=f"has format 99, but this version reads {FORMAT}"):
        load_checkpoint(tmp_path)


def test_a_file_with_a_valid_hash_that_is_not_safetensors_is_refused(tmp_path: Path) -> None:
    data = b"a pickle would run code here"
    file(tmp_path, 1).write_bytes(data)
    manifest = {"format": FORMAT, "step": 1, "sha256": hashlib.sha256(data).hexdigest()}
    file(tmp_path, 1, "json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match="not a safetensors file"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_a_save_that_fails_leaves_the_checkpoints_before_it(
    folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stochflow.runs import checkpoint

    write = checkpoint.write_atomically

    def full_disk(path: Path, content: bytes | str) -> None:
        if path.suffix == f".{suffix}":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_atomically", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(folder, state(3), 3)
    assert_same(load_checkpoint(folder), state(2))


def test_a_damaged_checkpoint_does_not_push_out_a_whole_one(folder: Path) -> None:
    save_checkpoint(folder, state(9), 9)
    flip_bit(file(folder, 9), -1)
    # a run that fell back to step 2 saves steps 3 and 4 while the damaged step 9 is still the newest by name
    for step in (3, 4):
        save_checkpoint(folder, state(step), step)
    flip_bit(file(folder, 4), -1)
    with pytest.warns(UserWarning, match="damaged"):
        assert_same(load_checkpoint(folder), state(3))
