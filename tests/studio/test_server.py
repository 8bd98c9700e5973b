import socket
from pathlib import Path

import pytest

from stochflow import ConfigError
from stochflow.studio.server import serve


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} of 127\.0\.0\.1 cannot be used \(Address already in use\)"
        ):
            serve(tmp_path, port)


def test_an_interface_of_another_machine_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"of 192\.0\.2\.1 cannot be used"):
        serve(tmp_path, 0, "192.0.2.1")


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write to"):
        serve(tmp_path / "file", 0)
