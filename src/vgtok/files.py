"""Files written whole or not at all: a kill leaves what was there before."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vgtok.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside `path` to write to; it takes the name once the block ends well, and is gone if it does not.

    Folders are made as needed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        # Named as the caller names it: mkstemp makes a relative folder absolute, and the two would not compare equal.
        temporary = path.with_name(Path(name).name)
        try:
            # mkstemp is private by design; a result is as readable as any other file of the user.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            yield temporary
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` whole."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as `write_bytes` does."""
    write_bytes(path, text.encode())
