"""Arguments and results as JSON. A value that JSON does not keep exactly is pickled: {"$pickle": BASE64}."""

import base64
import io
import json
import pickle
import sys

from ._errors import FunctionError

try:
    # Only notebooks, closures and lambdas need it. Its table of classes has no public name, so pyproject.toml names one version.
    from cloudpickle import cloudpickle

    if not hasattr(cloudpickle, "Pickler"):
        cloudpickle = None  # a version before 3
except ImportError:
    cloudpickle = None

PICKLE = "$pickle"
PROTOCOL = 5
# Deeper values are pickled, because JSON parsers on the way limit the depth.
DEPTH_MAX = 32

# Types that the client makes from a node's pickle although it does not trust nodes: making one runs no code of the pickle's author.
SAFE = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "uuid": {"UUID"},
    "_codecs": {"encode"},
    "copyreg": {"_reconstructor"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
}
# `copyreg._reconstructor` calls `cls.__new__` of its arguments, which are themselves found here.
PLAIN = {"builtins": {"object", "int", "float", "str", "list", "dict", "tuple", "bytes", "bool"}}


class MissingCloudpickle(TypeError):
    """A value has code without a file, and cloudpickle 3 is not installed."""


def is_exact(value, depth=0):
    """True if JSON gives back an equal value of the same type."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return kind is not str or not any("\ud800" <= char <= "\udfff" for char in value)
    if kind is float:
        return value - value == 0
    if depth >= DEPTH_MAX:
        return False
    if kind is list:
        return all(is_exact(item, depth + 1) for item in value)
    if kind is dict:
        return PICKLE not in value and all(type(key) is str and is_exact(key) and is_exact(item, depth + 1) for key, item in value.items())
    return False


def dumps(value, by_value=False):
    """The pickle. `by_value`: classes and functions of `__main__` travel with it, as a notebook needs."""
    if not by_value:
        try:
            return pickle.dumps(value, PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # a lambda, a closure, or a class in a function
    return dumps_code(value)


def dumps_code(value):
    """The pickle of a value, with its code unless a package on the node has it. @raises MissingCloudpickle"""
    if cloudpickle is not None:
        return cloudpickle.dumps(value, PROTOCOL)
    try:
        named = pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        named = b"__main__"
    if b"__main__" in named:
        raise MissingCloudpickle("its code has no file, so it needs cloudpickle 3: pip install 'opentela[notebook]'")
    return named


class _ResultPickler(cloudpickle.Pickler if cloudpickle else pickle.Pickler):
    """Names the classes that the client sent with a function, because it will not take code from a node."""

    def persistent_id(self, obj):
        known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj) if cloudpickle and isinstance(obj, type) else None
        return known and ("class", known)


def dumps_result(value, by_value=False):
    packed = io.BytesIO()
    _ResultPickler(packed, PROTOCOL).dump(value)
    return packed.getvalue()


def encode(value, by_value=False, pickled=dumps):
    """What stands in the line. @raises TypeError if the value cannot be pickled"""
    if is_exact(value):
        return value
    try:
        return {PICKLE: base64.b64encode(pickled(value, by_value)).decode()}
    except Exception as error:
        raise TypeError(f"a value of type {type(value).__qualname__} cannot be pickled ({error}): pass its path or its data instead") from error


def to_text(encoded):
    return json.dumps(encoded, allow_nan=False, separators=(",", ":"))


def is_pickled(encoded):
    return type(encoded) is dict and PICKLE in encoded


def decode(encoded):
    """The value of a text that this side trusts: a node reads its owner's inputs, a local run its own."""
    return pickle.loads(base64.b64decode(encoded[PICKLE])) if is_pickled(encoded) else encoded


class _ByName:
    def __init__(self, data, modules):
        super().__init__(io.BytesIO(data))
        self.modules = modules

    def persistent_load(self, pid):
        is_class = cloudpickle and isinstance(pid, tuple) and len(pid) == 2
        found = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(pid[1]) if is_class else None
        if found is None:
            raise FunctionError("the result is of a class that another process defined: define the class in a .py file", "unreadable_result")
        return found

    def find_class(self, module, name):
        # Nodes import the main program under this name.
        return super().find_class("__main__" if module == "__mp_main__" else module, name)


class _Trusting(_ByName, pickle.Unpickler):
    pass


class _Careful(_ByName, pickle._Unpickler):
    """In Python, because the other unpickler has no hook for the state of an object."""

    def load_build(self):
        # The state of a class would be its attributes, also those of a class in the standard library.
        if isinstance(self.stack[-2], type):
            raise FunctionError("the result would change a class of this program", "untrusted_result")
        super().load_build()

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def find_class(self, module, name):
        module = "__main__" if module == "__mp_main__" else module
        if name in SAFE.get(module, ()) or name in PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module in self.modules and "." not in name:
            found = getattr(sys.modules.get(module), name, None)
            # Only classes that this module defines itself: it may have imported others, such as subprocess.Popen.
            if isinstance(found, type) and found.__module__ in self.modules:
                return found
        raise FunctionError(
            f"the result needs {module}.{name}, and a node could run any code here with it: return numbers, strings, lists, NumPy arrays "
            "or classes of the function's file, or trust the nodes: Client(trust_nodes=True)",
            "untrusted_result",
        )


def decode_result(encoded, modules=(), trust=False):
    """The value that a node returned. Without `trust` it can be of safe types and of classes that `modules` define. @raises FunctionError"""
    if not is_pickled(encoded):
        return encoded
    try:
        data = base64.b64decode(encoded[PICKLE], validate=True)
        return (_Trusting if trust else _Careful)(data, modules).load()
    except FunctionError:
        raise
    except Exception as error:
        raise FunctionError(
            f"the result cannot be unpickled here ({type(error).__name__}: {error}): install the packages of its type, or return plain values",
            "unreadable_result",
        ) from error
