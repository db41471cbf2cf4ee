"""Runs a packed function on a node. The agent's harness calls `open_bundle`, and then `call` for each call."""

import asyncio
import base64
import importlib
import importlib.util
import inspect
import os
import pickle
import runpy
import shutil
import sys
import traceback
import types
import zipfile
import zlib
from io import BytesIO

from . import _files, _values
from ._function import Function

ERROR_CHARS = 900
# True in a process that runs a function: then a Client starts no runs.
ON_NODE = False
# Names of packages that differ from the module's.
NAMES = {"PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "sklearn": "scikit-learn", "yaml": "pyyaml"}


class Worker:
    """A function with its loaded state."""

    def __init__(self, function, by_value=False):
        self.function, self.by_value = function, by_value
        self.loop = None
        self.first = function.first_arguments() if not inspect.iscoroutinefunction(function.load) else ()
        if inspect.iscoroutinefunction(function.load):
            # On the loop of the calls, because clients of asyncio belong to one loop.
            self.first = (self._run(function.load(**function.context)),)

    def _run(self, awaitable):
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(awaitable)

    def call(self, inputs):
        """The results of (args, kwargs) pairs; an exception in place of a result that is missing."""
        if self.function.is_batched:
            return self._call_list(inputs)
        if inspect.iscoroutinefunction(self.function.infer):
            calls = [self._awaited(args, kwargs) for args, kwargs in inputs]
            try:
                return self._run(_gathered(calls))
            finally:
                empty_directory()
        return [self._attempt(args, kwargs) for args, kwargs in inputs]

    async def _awaited(self, args, kwargs):
        try:
            return _collected(await self.function.infer(*self.first, *args, **kwargs))
        except Exception as error:
            return Failure(error)

    def _attempt(self, args, kwargs):
        try:
            return _collected(self._whole(self.function.infer(*self.first, *args, **kwargs)))
        except Exception as error:
            return Failure(error)
        finally:
            empty_directory()

    def _whole(self, result):
        if inspect.isawaitable(result):
            return self._run(_awaited(result))
        if inspect.isasyncgen(result):
            return self._run(_listed(result))
        return list(result) if inspect.isgenerator(result) else result

    def _call_list(self, inputs):
        """A function with batch_size= gets one list. Its keyword arguments are those of the first input; inputs that differ are apart."""
        results = [None] * len(inputs)
        groups = {}
        for index, (args, kwargs) in enumerate(inputs):
            groups.setdefault(repr(sorted(kwargs.items())), []).append(index)
            if len(args) != 1:
                results[index] = Failure(TypeError("a function with batch_size= takes one argument for each input"))
        for group in groups.values():
            wanted = [index for index in group if results[index] is None]
            if not wanted:
                continue
            kwargs = inputs[wanted[0]][1]
            try:
                made = self._whole(self.function.infer(*self.first, [inputs[index][0][0] for index in wanted], **kwargs))
                if not hasattr(made, "__len__"):
                    made = list(made)
                made = [_attempted(result) for result in made]
            finally:
                empty_directory()
            if len(made) != len(wanted):
                raise ValueError(f"the function got {len(wanted)} inputs and returned {len(made)} results")
            for index, result in zip(wanted, made):
                results[index] = result
        return results


# The working directory of calls on a node, and the directory into which the files of their results are moved.
CALL_FOLDER = OUTPUTS = None


def _collected(result):
    return result if CALL_FOLDER is None else _files.collected(result, CALL_FOLDER, OUTPUTS)


def empty_directory():
    """Deletes what a call left in its working directory, and makes it the working directory again."""
    if CALL_FOLDER is None:
        return
    os.makedirs(CALL_FOLDER, mode=0o700, exist_ok=True)
    os.chdir(CALL_FOLDER)
    with os.scandir(CALL_FOLDER) as entries:
        left = list(entries)
    for entry in left:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


class Failure:
    def __init__(self, error):
        self.error = error


def _attempted(result):
    try:
        return _collected(result)
    except Exception as error:
        return Failure(error)


async def _awaited(result):
    return await result


async def _listed(generator):
    return [item async for item in generator]


async def _gathered(calls):
    return await asyncio.gather(*calls)


def said(error, own=()):
    """The exception as its owner reads it, with the line of the owner's code that raised it."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename, own)]
    where = f" (line {frames[-1].lineno} of {os.path.basename(frames[-1].filename)}, in {frames[-1].name})" if frames else ""
    return text[: ERROR_CHARS - len(where)] + where


def _is_own(path, folders):
    return any(path.startswith(folder + os.sep) for folder in folders) or path.startswith("<ipython-input") or path == "<stdin>"


class Host:
    """What the agent's harness holds: it gets JSON values and returns JSON values."""

    def __init__(self, worker, folder):
        self.worker, self.folder = worker, folder
        # Files of the results of the last call, by the index of their line.
        self.files = {}
        # Classes of a file are known by their names on both sides.
        self.pickled = _values.dumps_result if worker.by_value else _values.dumps

    def call(self, lines):
        """Outputs by line, and messages of the lines that failed, by index."""
        inputs, failed = [], {}
        for index, line in enumerate(lines):
            try:
                inputs.append((index, *_pair(line)))
            except Exception as error:
                failed[index] = f"the arguments cannot be unpickled on the node: {said(error)}"
        outputs, self.files = [None] * len(lines), {}
        results = self.worker.call([(args, kwargs) for _, args, kwargs in inputs])
        for (index, *_), result in zip(inputs, results):
            try:
                if isinstance(result, Failure):
                    raise result.error
                if isinstance(result, _files.Collected):
                    self.files[index], result = result.files, result.value
                outputs[index] = _values.encode(result, self.worker.by_value, self.pickled)
            except Exception as error:
                traceback.print_exception(error)
                failed[index] = said(error, [self.folder])
                self.files.pop(index, None)
        return outputs, failed


def _pair(line):
    found = _values.decode(line)
    args, kwargs = (found.get("args", []), found.get("kwargs", {})) if isinstance(found, dict) else found
    return _files.placed(args), _files.placed(kwargs)


def missing(imports):
    """What to do about packages that are not there; None: all are there."""
    absent = sorted(root for root in imports if importlib.util.find_spec(root) is None)
    if not absent:
        return None
    wanted = sorted({NAMES.get(root, imports[root]) for root in absent})
    return (
        f"this node's Python has no package {', '.join(wanted)}: add it to the function, "
        f"@opentela.function(requirements=[{', '.join(repr(one) for one in wanted)}]), or run where it is installed"
    )


def open_bundle(bundle, folder):
    """Imports the function and loads its state. Its calls then have a directory that is empty when each begins.

    @raises Exception with what its owner can do about it
    """
    global CALL_FOLDER, OUTPUTS
    host = _opened(bundle, folder)
    CALL_FOLDER, outputs = (os.path.join(os.path.realpath(folder), name) for name in ("call", "outputs"))
    # Agents of earlier versions made no such directory.
    OUTPUTS = outputs if os.path.isdir(outputs) else None
    empty_directory()
    return host


def _opened(bundle, folder):
    global ON_NODE
    ON_NODE = True
    code = os.path.join(folder, "code")
    os.makedirs(code, mode=0o700, exist_ok=True)
    if "files" in bundle:
        with zipfile.ZipFile(BytesIO(base64.b64decode(bundle["files"]))) as archive:
            archive.extractall(code)
    sys.path.insert(0, code)
    why = missing(bundle["imports"])
    if why:
        raise ModuleNotFoundError(why)
    context = _values.decode(bundle["context"]) if "context" in bundle else {}
    if "pickle" in bundle:
        here, there = list(sys.version_info[:2]), bundle["pickled_by"]
        if here != there:
            raise RuntimeError(
                f"a function of a notebook, a lambda or a closure needs the Python that made it, {there[0]}.{there[1]}, and this node has "
                f'{here[0]}.{here[1]}: declare python="{there[0]}.{there[1]}", or move the function to the top level of a .py file'
            )
        infer, load = pickle.loads(zlib.decompress(base64.b64decode(bundle["pickle"])))
        function = Function(infer, load, context if load else None, bundle["options"])
        return Host(Worker(function, by_value=True), code)
    found = _module_of(bundle, code)
    for name in bundle["qualname"].split("."):
        found = getattr(found, name)
    infer, load = (found.infer, found.load) if isinstance(found, Function) else (found, None)
    return Host(Worker(Function(infer, load, context if load else None, bundle["options"])), code)


def _module_of(bundle, code):
    if "module" in bundle:
        return importlib.import_module(bundle["module"])
    # As multiprocessing's spawn: the main program is imported under another name, so that it does not run.
    module = types.ModuleType("__mp_main__")
    if "main_path" in bundle:
        module.__file__ = os.path.join(code, bundle["main_path"])
        sys.modules["__mp_main__"] = sys.modules["__main__"] = module
        with open(module.__file__, "rb") as file:
            exec(compile(file.read(), module.__file__, "exec"), module.__dict__)
        return module
    content = runpy.run_module(bundle["main_module"], run_name="__mp_main__", alter_sys=True)
    module.__dict__.update(content)
    sys.modules["__mp_main__"] = sys.modules["__main__"] = module
    return module
