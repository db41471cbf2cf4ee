"""Files that travel with calls: opentela.File(path) in the arguments, and in results."""

import hashlib
import os
import re
import shutil
import stat
import tempfile

from . import _values
from ._errors import FunctionError, OtelaError

# A file in the arguments of a line.
MARK = "$file"
# A result of another call, which the gateway put into the arguments of a line.
VALUE = "$otela_value"
# Files are found in arguments, and in lists, tuples and dicts in them up to this depth.
DEPTH_MAX = 4
PIECE = 2**20
# Files of one result, and characters of a name, as at the gateway.
RESULT_FILES_MAX = 64
NAME_MAX = 255


class File(os.PathLike):
    """A file. As an argument it is uploaded once, and the call gets a File whose path is on the node: open(file) works here and there.
    The function reads it and does not change it.

    A call also returns files that it wrote below its directory, as opentela.File("plot.png"). The script gets a File in their place, which
    is downloaded when it is first opened.
    """

    def __init__(self, path):
        self.path = os.path.abspath(os.fspath(path))
        self.name = os.path.basename(self.path)
        if not os.path.isfile(self.path):
            raise OtelaError(f"there is no file {self.path}")

    def __fspath__(self):
        return self.path

    def __str__(self):
        return self.path

    def __repr__(self):
        return f"File({self.path!r})"

    def __reduce__(self):
        raise TypeError("a File can be an argument or a result of a call, or in a list, tuple or dict that is one")

    def digest(self):
        read = hashlib.sha256()
        with open(self.path, "rb") as file:
            while piece := file.read(PIECE):
                read.update(piece)
        return read.hexdigest()

    def save(self, folder="."):
        """Copies the file into a directory, under its name. Returns the path."""
        path = os.path.join(folder, self.name)
        shutil.copyfile(self.path, path)
        return path


class ResultFile(File):
    """A file that a call wrote. `path` is that of a copy here, which is deleted with the File."""

    def __init__(self, gateway, entry):
        self.gateway, self.name = gateway, os.path.basename(entry["name"])
        self.id, self.bytes, self.sha256 = entry["id"], entry["bytes"], entry["sha256"]
        self._folder = None

    @property
    def path(self):
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="opentela-")
            self.gateway.download(self.id, os.path.join(folder.name, self.name), self.bytes, self.sha256)
            self._folder = folder
        return os.path.join(self._folder.name, self.name)

    def __repr__(self):
        return f"File({self.name!r}, {self.bytes} bytes)"

    # A message that names the file does not download it.
    __str__ = __repr__

    def digest(self):
        return self.sha256


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
    """The value with a File in place of each mark, and with the results of other calls."""
    if depth > DEPTH_MAX or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        if value.keys() == {VALUE}:
            return _values.decode(value[VALUE])
        if value.keys() == {VALUE, "files"}:
            return _of_result(_values.decode(value[VALUE]), value["files"])
        if value.keys() == {MARK, "name"}:
            return File(_place_of(value[MARK], value["name"]))
        return {key: placed(item, depth + 1) for key, item in value.items()}
    return type(value)(placed(item, depth + 1) for item in value)


def _of_result(value, files):
    """The result of another call on this node. `files`: the id and the name of each of its files."""

    def file_of(index):
        if not 0 <= index < len(files):
            raise FunctionError("a result names a file that it does not have", "unreadable_result")
        return File(_place_of(*files[index]))

    return _unmarked(value, file_of)


def numbered(value, id_of):
    """A result with a mark in place of each File, and the id and the name of each: what `placed` reads on a node."""
    files = []

    def index_of(file):
        files.append([id_of(file), file.name])
        return len(files) - 1

    return marked(value, index_of), files


class Collected:
    """A result with files: `value` has a mark in place of each, and `files` what the agent sends to the gateway."""

    def __init__(self, value, files):
        self.value, self.files = value, files


def collected(value, folder, outputs):
    """The result of a call. Its files below `folder` are moved to the directory `outputs`. @raises OtelaError"""
    moved = {}

    def index_of(file):
        if file.path not in moved:
            if len(moved) == RESULT_FILES_MAX:
                raise OtelaError(f"a call returns at most {RESULT_FILES_MAX} files: return an archive, such as a .tar file")
            moved[file.path] = (len(moved), _moved(file, folder, outputs))
        return moved[file.path][0]

    try:
        made = marked(value, index_of)
    except OtelaError:
        for _, file in moved.values():
            os.unlink(os.path.join(outputs, file["path"]))
        raise
    return Collected(made, [file for _, file in moved.values()]) if moved else value


def _moved(file, folder, outputs):
    if outputs is None:
        raise OtelaError("this node cannot collect files: its agent is of an earlier version")
    real = os.path.realpath(file.path)
    if real != file.path or not real.startswith(folder + os.sep) or not stat.S_ISREG(os.lstat(real).st_mode):
        raise OtelaError(f"a call can return files that it wrote below its working directory, and no links: {file.path}")
    if len(file.name) > NAME_MAX or not file.name.isprintable():
        raise OtelaError(f"the name of a file that a call returns has at most {NAME_MAX} characters, and all are printable: {file.name!r}")
    path = os.urandom(16).hex()
    os.rename(real, os.path.join(outputs, path))
    return {"path": path, "name": file.name}


def received(value, files, gateway):
    """The result with a File in place of each mark. `files`: those of the response. @raises FunctionError"""
    return _unmarked(value, lambda index: _result_file(index, files, gateway))


def _unmarked(value, file_of, depth=0):
    if depth > DEPTH_MAX or type(value) not in (list, tuple, dict):
        return value
    if type(value) is dict:
        if value.keys() == {MARK, "name"} and type(value[MARK]) is int:
            return file_of(value[MARK])
        return {key: _unmarked(item, file_of, depth + 1) for key, item in value.items()}
    return type(value)(_unmarked(item, file_of, depth + 1) for item in value)


def _result_file(index, files, gateway):
    entry = files[index] if type(files) is list and 0 <= index < len(files) else None
    fields = {"id": str, "name": str, "bytes": int, "sha256": str}
    if type(entry) is dict and all(type(entry.get(name)) is kind for name, kind in fields.items()):
        name = os.path.basename(entry["name"])
        if name.isprintable() and name not in ("", ".", "..") and re.fullmatch("file-[A-Za-z0-9_-]{1,64}", entry["id"]):
            return ResultFile(gateway, entry)
    raise FunctionError("the result names a file that its node did not send", "unreadable_result")


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
