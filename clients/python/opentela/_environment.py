"""A packed environment, which travels to nodes in pieces."""

import functools
import hashlib
import os

from ._errors import OtelaError

# As on the node. A file of the gateway has at most 512 MB, and a piece is in memory while it is sent.
PIECE_BYTES = 64 * 2**20
PIECES_MAX = 256


class Environment:
    """An archive of conda-pack, or of a virtual environment made with `python -m venv --copies`."""

    def __init__(self, path):
        self.path, self.pieces = path, []
        size = os.path.getsize(path)
        if size > PIECE_BYTES * PIECES_MAX:
            raise OtelaError(f"environment={path!r} has {size} bytes, and at most {PIECE_BYTES * PIECES_MAX} are possible")
        whole = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                whole.update(piece)
                self.pieces.append(hashlib.sha256(piece).hexdigest())
        self.sha256 = whole.hexdigest()

    def ids(self, stored):
        """The ids of the pieces at the gateway. `stored(name, extension, content)` returns the id of one."""
        return [stored(f"input-{digest[:40]}", "", functools.partial(self._read, number)) for number, digest in enumerate(self.pieces)]

    def _read(self, number):
        with open(self.path, "rb") as file:
            file.seek(number * PIECE_BYTES)
            return file.read(PIECE_BYTES)


def environment_at(path):
    """@raises OtelaError"""
    whole = os.path.abspath(path)
    try:
        found = os.stat(whole)
    except OSError as error:
        raise OtelaError(f"environment={path!r}: {error.strerror}: pack one with conda-pack, or as docs/functions.md says") from error
    return _read_once(whole, found.st_size, found.st_mtime_ns)


@functools.lru_cache(8)
def _read_once(path, size, changed):
    return Environment(path)
