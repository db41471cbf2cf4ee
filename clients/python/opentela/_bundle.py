"""Packs a function for nodes: its code, its options, and this library, as one JSON text.

A function of a file travels as that file, with the modules beside it that it imports, or as its whole package. A function of a
notebook, and a closure or lambda, travels by cloudpickle; then nodes need the same minor version of Python.
"""

import ast
import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import pkgutil
import sys
import sysconfig
import textwrap
import zipfile
import zlib

from . import _values
from ._environment import environment_at
from ._errors import OtelaError
from ._function import Function

BYTES_MAX = 512 * 1024
# Files of a package that travel with it; more is no code.
FILES_MAX = 500
FORMAT = 1
SKIPPED = {"__pycache__", "node_modules", "venv"}


class Bundle:
    """A packed function. `context`: the hash under which its results are found again; another version of this library keeps it."""

    endpoint = "/v1/otela/functions"

    def __init__(self, function, parts, modules):
        self.function, self.modules = function, modules
        path = function.options.get("environment")
        self.environment = None if path is None else environment_at(path)
        if self.environment:
            parts = {**parts, "options": {**parts["options"], "environment": self.environment.sha256}}
        own = _json(parts)
        self.context = hashlib.sha256(own.encode()).hexdigest()
        self.name = parts["name"]
        self.text = _json({"opentela_function": FORMAT, **parts, "library": library("pickle" in parts and _values.cloudpickle is not None)})
        if len(self.text) > BYTES_MAX:
            raise OtelaError(
                f"{self.name} with its modules has {len(self.text)} bytes, and at most {BYTES_MAX} are possible: "
                "name packages in requirements=[...], and load data in load()"
            )


    def text_with(self, stored):
        """The text, with the ids of the environment's pieces. `stored`: as of Environment.ids."""
        if self.environment is None:
            return self.text
        return _json({**json.loads(self.text), "environment_files": self.environment.ids(stored)})


def _json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@functools.cache
def library(with_cloudpickle):
    """This package without its part for sealed prompts, as a zip file in base64. Only the same cloudpickle reads a pickle, so it travels."""
    # All of its modules, because the package's __init__ imports most of them.
    names = [one.name for one in pkgutil.iter_modules(sys.modules[__package__].__path__) if not one.ispkg]
    files = _modules_of(__package__, ["__init__", *names])
    if with_cloudpickle:
        files.update(_modules_of("cloudpickle", ("__init__", "cloudpickle")))
    return _zip(files)


def _modules_of(package, names):
    spec = importlib.util.find_spec(package)
    folder = spec.submodule_search_locations[0]
    read = getattr(spec.loader, "get_data", None) or (lambda path: open(path, "rb").read())
    return {f"{package}/{name}.py": read(os.path.join(folder, f"{name}.py")) for name in names}


def _zip(files):
    """The files as base64 of a zip file that has the same bytes for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            archive.writestr(zipfile.ZipInfo(path), files[path], zipfile.ZIP_DEFLATED, 9)
    return base64.b64encode(packed.getvalue()).decode()


def pack(function):
    """The Bundle of a function. @raises OtelaError if it cannot travel"""
    infer, load = function.infer, function.load
    parts = {"name": infer.__qualname__, "options": function.options}
    if function.context:
        try:
            parts["context"] = _values.encode(function.context)
        except TypeError as error:
            raise OtelaError(f"{infer.__qualname__}: context=: {error}") from error
    module = sys.modules.get(infer.__module__)
    if module is not None and _is_importable(function, module):
        files, imports, entry = _files_of(function, module)
        if files:
            parts["files"] = _zip(files)
        parts.update(entry, imports=imports, qualname=infer.__qualname__)
        return Bundle(function, parts, _names(module, files))
    return _by_value(function, parts, infer, load, module)


def _names(module, files):
    """Modules whose classes results may have: those that travel."""
    names = {module.__name__} | {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files if name.endswith(".py")}
    return names | {"__main__", "__mp_main__"} if module.__name__ == "__main__" else names


def _by_value(function, parts, infer, load, module):
    files, imports, folder = {}, {}, _folder_of(module)
    roots = _needed_by(function).union(*(_global_modules(one) for one in (infer, load) if one))
    if module is not None and module.__name__ != "__main__":
        roots.add(module.__name__.partition(".")[0])
    _collect(roots, set(), files, imports, folder)
    try:
        pickled = _values.dumps_code((infer, load))
    except _values.MissingCloudpickle as error:
        raise OtelaError(f"{infer.__qualname__}: {error}, or put the function into a file") from error
    except Exception as error:
        raise OtelaError(
            f"{infer.__qualname__} cannot be pickled ({error}): open files, connections and models in load(), or put the function into a file"
        ) from error
    parts.update(
        pickle=base64.b64encode(zlib.compress(pickled, 9)).decode(),
        pickled_by=list(sys.version_info[:2]),
        imports=imports,
    )
    if files:
        parts["files"] = _zip(files)
    return Bundle(function, parts, _names(sys.modules["__main__"], files) - {"__mp_main__"})


def _is_importable(function, module):
    """True if a node finds the function in its module's file under the same name."""
    if not _source_of(module):
        return False
    names = function.infer.__qualname__.split(".")
    if module.__name__ == "__main__" and names[0] in _main_only(_parsed(_read(_source_of(module)), module.__file__)):
        return False
    found = module
    for name in names:
        found = getattr(found, name, None)
    if isinstance(found, Function):
        return found.infer is function.infer and found.load is function.load
    # A plain function, which needs no load().
    return found is function.infer and function.load is None


def _source_of(module):
    path = getattr(module, "__file__", None)
    return path if path and path.endswith(".py") and os.path.isfile(path) else None


def _folder_of(module):
    path = module and _source_of(module)
    return os.path.dirname(os.path.abspath(path)) if path else os.getcwd()


def _files_of(function, module):
    """The files that travel, the packages that nodes need, and how a node imports the module."""
    files, imports = {}, {}
    path = os.path.abspath(_source_of(module))
    spec = module.__spec__ if module.__name__ == "__main__" else None
    if module.__name__ == "__main__" and spec is None:
        name = os.path.basename(path)
        files[name] = _read(path)
        _collect(*_imports_of(_parsed(files[name], path), function), files, imports, os.path.dirname(path))
        return files, imports, {"main_path": name}
    name = spec.name.removesuffix(".__main__") if spec else module.__name__
    _collect({name.partition(".")[0]} | _needed_by(function), set(), files, imports, os.path.dirname(path))
    return files, imports, {"main_module" if spec else "module": spec.name if spec else name}


def _collect(needed, mentioned, files, imports, folder):
    """Adds local modules to `files`, and other packages to `imports` if they are needed; also for what the modules import.

    needed: imported for certain. mentioned: imported by functions that may not run.
    """
    waiting = [(root, True) for root in sorted(needed)] + [(root, False) for root in sorted(mentioned - needed)]
    seen = set()
    while waiting:
        root, is_needed = waiting.pop(0)
        if (root, is_needed) in seen or (root, True) in seen or root in sys.stdlib_module_names or root in ("opentela", "__main__"):
            continue
        seen.add((root, is_needed))
        local = _local_files(root, folder)
        if local is None:
            if is_needed:
                imports[root] = _distribution(root)
            continue
        for name, content in local.items():
            files[name] = content
            if len(files) > FILES_MAX:
                raise OtelaError(f"the package {root} has more than {FILES_MAX} files: install it on the nodes with requirements=[...]")
            if name.endswith(".py"):
                run, other = _imports_of(_parsed(content, name))
                waiting.extend((one, is_needed) for one in sorted(run))
                waiting.extend((one, False) for one in sorted(other - run))


def _imports_of(tree, function=None):
    """What runs when the file is imported, with what the function needs; and all that the file mentions."""
    run = _imported(tree, deep=False)
    return (run if function is None else run | _needed_by(function)), _imported(tree)


def _needed_by(function):
    trees = [_tree_of(one) for one in (function.infer, function.load) if one is not None]
    return set().union(*(_imported(tree) for tree in trees if tree))


def _local_files(root, folder):
    """The files of a module or package that is not installed, by name; None: it is installed, or is not here."""
    for base in (os.path.join(folder, root), os.path.join(folder, f"{root}.py")):
        if os.path.isfile(base):
            return {f"{root}.py": _read(base)}
        if os.path.isfile(os.path.join(base, "__init__.py")):
            return _tree(base, root)
    loaded = sys.modules.get(root)
    try:
        spec = getattr(loaded, "__spec__", None) or importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin in (None, "built-in", "frozen") or _is_installed(spec.origin) or not spec.origin.endswith(".py"):
        return None
    if spec.submodule_search_locations:
        return _tree(os.path.dirname(spec.origin), root)
    return {f"{root}.py": _read(spec.origin)}


def _is_installed(path):
    parts = os.path.abspath(path).split(os.sep)
    library = os.path.abspath(sysconfig.get_paths()["stdlib"]) + os.sep
    return "site-packages" in parts or "dist-packages" in parts or os.path.abspath(path).startswith(library)


def _tree(folder, root):
    files, size = {}, 0
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            whole = os.path.join(path, name)
            if name.startswith(".") or name.endswith((".pyc", ".so")) or not os.path.isfile(whole):
                continue
            size += os.path.getsize(whole)
            if size > 16 * BYTES_MAX or len(files) > FILES_MAX:
                raise OtelaError(f"the package {root} ({folder}) is too large to travel: install it on the nodes with requirements=[...]")
            files[os.path.join(root, os.path.relpath(whole, folder)).replace(os.sep, "/")] = _read(whole)
    return files


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _parsed(content, name):
    try:
        return ast.parse(content)
    except SyntaxError as error:
        raise OtelaError(f"{name} is not valid Python: {error}") from error


def _tree_of(function):
    """None: it has no source, or an installed package has it, which imports what it needs itself."""
    try:
        if _is_installed(inspect.getsourcefile(function) or ""):
            return None
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None  # a function of exec(), or a lambda in the middle of a line


def _global_modules(function):
    code, found = getattr(function, "__code__", None), set()
    for name in code.co_names if code else ():
        value = function.__globals__.get(name)
        if inspect.ismodule(value):
            found.add(value.__name__.partition(".")[0])
    return found


def _imported(tree, deep=True):
    """Roots of imported modules: not those that a handler replaces, nor those of type checks or of the main program.

    deep: with imports in functions.
    """
    found = set()

    def visit(node):
        if isinstance(node, ast.Import):
            found.update(one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Try) and any(_handles_import(handler) for handler in node.handlers):
            for one in (*node.orelse, *node.finalbody):
                visit(one)
        elif not deep and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pass
        elif isinstance(node, ast.If) and _is_elsewhere(node.test):
            for one in node.orelse:
                visit(one)
        else:
            for one in ast.iter_child_nodes(node):
                visit(one)

    visit(tree)
    return found


def _handles_import(handler):
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(kind, "id", None) for kind in kinds}
    return handler.type is None or bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def _is_elsewhere(test):
    text = ast.unparse(test)
    return text in ("TYPE_CHECKING", "typing.TYPE_CHECKING") or text in ("__name__ == '__main__'", "'__main__' == __name__")


def _main_only(tree):
    """Names of functions and classes that a file defines only as main program."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    guarded = [one for node in tree.body if isinstance(node, ast.If) and _is_elsewhere(node.test) for one in node.body]
    return {one.name for one in guarded if isinstance(one, kinds)}


def _distribution(root):
    """The name by which pip knows a module's package."""
    return (importlib.metadata.packages_distributions().get(root) or [root])[0]
