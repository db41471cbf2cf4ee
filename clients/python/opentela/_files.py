"""Files that travel with calls: opentela.File(path) in the arguments."""

import hashlib
import os

from ._errors import OtelaError

# A file in the arguments of a line.
MARK = "$file"
# Files are found in arguments, and in lists, tuples and dicts in them up to this depth.
DEPTH_MAX = 4
PIECE = 2**20


class File(os.PathLike):
    """A file of this machine. It is uploaded once, and the call gets a File whose path is on the node: open(file) works here and there.

    The function reads it and does not change it.
    """

    def __init__(self, path):
        self.path = os.path.abspath(os.fspath(path))
        self.name = os.path.basename(self.path)
        if not os.path.isfile(self.path):
            raise OtelaError(f"there is no file {self.path}")

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"File({self.path!r})"

    def __reduce__(self):
        raise TypeError("a File can be an argument of a call, or in a list, tuple or dict that is one; and not a result")

    def digest(self):
        read = hashlib.sha256()
        with open(self.path, "rb") as file:
            while piece := file.read(PIECE):
                read.update(piece)
        return read.hexdigest()


def marked(value, name_of, depth=0):
    """The value with a mark in place of each File. `name_of` returns the id by which the other side finds a file."""
    if isinstance(value, File):
        return {MARK: name_of(value), "name": value.name}
    if depth >= DEPTH_MAX or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        return {key: marked(item, name_of, depth + 1) for key, item in value.items()}
    return type(value)(marked(item, name_of, depth + 1) for item in value)


def placed(value, depth=0):
    """The value with a File in place of each mark."""
    if depth > DEPTH_MAX or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        if value.keys() == {MARK, "name"}:
            return File(_place_of(value[MARK], value["name"]))
        return {key: placed(item, depth + 1) for key, item in value.items()}
    return type(value)(placed(item, depth + 1) for item in value)


def _place_of(id, name):
    """The path of a file. On a node, the agent has put it below OTELA_FILES, and programs look at the end of its name."""
    folder = os.environ.get("OTELA_FILES")
    if folder is None or os.path.isabs(id):
        return id
    named = os.path.join(os.environ["HOME"], "named", os.path.basename(id))
    os.makedirs(named, mode=0o700, exist_ok=True)
    path = os.path.join(named, os.path.basename(name) or "file")
    if not os.path.islink(path):
        os.symlink(os.path.join(folder, os.path.basename(id)), path)
    return path
