"""The folder of a studio: what may be read there, what may be made there, and where uploads lie."""

import re
import secrets
import shutil
from pathlib import Path

from stochflow import ConfigError, DataError
from stochflow.core.files import write_atomically

HIDDEN = ".studio"  # uploads and jobs; `stochflow.status` does not look into hidden folders
MAX_UPLOAD = 32 * 2**20
_MAX_UPLOADS = 50
_MAX_NAME = 60
_ID = re.compile(r"[0-9a-f]{16}")


class Folder:
    """A folder and what is kept in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     folder = Folder(Path(path))
    ...     folder.stored(folder.store("../../my table.csv", b"sequence,score")).name
    'my-table.csv'
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.hidden = self.root / HIDDEN
        self._uploads = self.hidden / "uploads"

    def inside(self, relative: str) -> Path:
        """A run or campaign of the folder by its relative path; whatever leads out of the folder is refused."""
        try:
            path = (self.root / relative).resolve()
        except (OSError, ValueError):
            path = self.root.parent
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else (".",)
        if any(part.startswith(".") for part in parts):
            raise DataError(f"'{relative[:100]}' is not in the folder of this studio; choose a run or campaign from it")
        return path

    def relative(self, path: Path) -> str:
        """How pages name a path of the folder."""
        return path.resolve().relative_to(self.root).as_posix()

    def fresh(self, name: str) -> Path:
        """A path of that name that is not taken, for a new run or campaign."""
        path = self.root / clean_name(name)
        if path.exists():
            raise ConfigError(f"there is a '{path.name}' in this folder already; choose another name")
        return path

    def store(self, name: str, content: bytes) -> str:
        """Keep an uploaded file; returns its id. The oldest uploads go when there are many."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        folders = sorted(self._uploads.iterdir(), key=lambda folder: folder.stat().st_mtime)
        for old in folders[: -_MAX_UPLOADS + 1]:
            shutil.rmtree(old, ignore_errors=True)
        key = secrets.token_hex(8)
        (self._uploads / key).mkdir()
        write_atomically(self._uploads / key / clean_name(name), content)
        return key

    def stored(self, key: str) -> Path:
        """The file of an upload."""
        found = list((self._uploads / key).glob("[!.]*")) if _ID.fullmatch(key) else []
        if len(found) != 1:
            raise DataError("the uploaded file is not there any more; choose it again")
        return found[0]


def clean_name(text: str) -> str:
    """A file name of plain letters without folders.

    >>> clean_name("C:\\\\data\\\\my table (1).csv"), clean_name("../.."), clean_name(".ssh")
    ('my-table-1-.csv', 'unnamed', 'ssh')
    """
    last = re.split(r"[\\/]", text)[-1]
    name = re.sub(r"[^\w.]+", "-", last, flags=re.ASCII).strip(".-")
    return f"{name[: _MAX_NAME // 2]}{name[-_MAX_NAME // 2 :]}" if len(name) > _MAX_NAME else name or "unnamed"
