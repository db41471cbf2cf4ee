"""`@opentela.function` and what it declares."""

import functools
import inspect
import os
import re
import threading

from ._errors import OtelaError

UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "b": 1}
TIMES = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
# As in docs/functions.md. The node checks them again.
REQUIREMENTS_MAX = 128
BATCH_MAX = 100
GPUS_MAX = 64
SECRETS_MAX = 16
SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,54}_(TOKEN|KEY|SECRET|PASSWORD)")


def size_bytes(value, name):
    """A number of bytes, or text as "40 GiB"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return int(value)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B)\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    if not found:
        raise OtelaError(f'{name}={value!r} is not a size: write for example {name}="40 GiB"')
    return int(float(found[1]) * UNITS[found[2].lower()])


def seconds(value, name):
    """A number of seconds, or text as "30m"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)\s*", value) if isinstance(value, str) else None
    if not found:
        raise OtelaError(f'{name}={value!r} is not a time: write seconds, or for example {name}="30m"')
    return float(found[1]) * TIMES[found[2]]


def texts(value, name):
    listed = [value] if isinstance(value, str) else list(value)
    if len(listed) > REQUIREMENTS_MAX or not all(isinstance(one, str) and one.strip() and "\n" not in one for one in listed):
        raise OtelaError(f"{name} must be a list of at most {REQUIREMENTS_MAX} texts")
    return [one.strip() for one in listed]


def whole(value, name, least, most):
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise OtelaError(f"{name}={value!r} must be a whole number from {least} to {most}")
    return value


def declared(given):
    """The options as a node reads them. They are part of the context: other options are another context.

    given: arguments of `function` that were given, by their names.
    """
    found = {}
    if "requirements" in given:
        found["requirements"] = texts(given["requirements"], "requirements")
    if "python" in given:
        found["python"] = str(given["python"])
        if not re.fullmatch(r"3\.\d{1,2}", found["python"]):
            raise OtelaError(f'python={given["python"]!r} must be a version such as "3.12"')
    if "environment" in given:
        if found:
            raise OtelaError("environment= has its own Python and packages: leave out requirements= and python=")
        # A path, which the client replaces by the hash of the archive. On a node there is no such file.
        found["environment"] = os.fspath(given["environment"])
    if "weights" in given:
        found["weights"] = texts(given["weights"], "weights")
    if "gpus" in given:
        found["gpus"] = whole(given["gpus"], "gpus", 0, GPUS_MAX)
    if "memory" in given:
        found["memory_bytes"] = size_bytes(given["memory"], "memory")
    if "batch_size" in given:
        size = given["batch_size"]
        found["batch_size"] = size if size == "auto" else whole(size, "batch_size", 1, BATCH_MAX)
    if "keep" in given:
        found["keep_s"] = 0 if given["keep"] == 0 else seconds(given["keep"], "keep")
    if "secrets" in given:
        found["secrets"] = texts(given["secrets"], "secrets")
        for name in found["secrets"]:
            if len(found["secrets"]) > SECRETS_MAX or not SECRET_NAME.fullmatch(name):
                raise OtelaError(
                    f"secrets: {name!r} must have capital letters, digits and _, and end with _TOKEN, _KEY, _SECRET or _PASSWORD, "
                    f"as HF_TOKEN; and at most {SECRETS_MAX} are possible"
                )
    if "timeout" in given:
        found["timeout_s"] = seconds(given["timeout"], "timeout")
    demands = [given["require"]] if "require" in given else []
    if "vram" in given:
        demands.append(f"vram>={size_bytes(given['vram'], 'vram') / 2**30:g}")
    if demands:
        found["require"] = "; ".join(demands)
    return found


class Function:
    """A function that nodes can run. Called directly, it runs here, for tests.

    declares: what the decorator was given, of which `options` were made. A second decorator adds to it.
    """

    def __init__(self, infer, load=None, context=None, options=None, declares=None):
        # First, because it copies the attributes of `infer`, which may have the names of ours.
        functools.update_wrapper(self, infer)
        self.infer, self.load = infer, load
        self.context, self.options = dict(context or {}), dict(options or {})
        self.declares = dict(declares or {})
        if self.context and load is None:
            raise OtelaError(f"{infer.__qualname__}: context= are arguments of load(), and there is no load=")
        self._state, self._lock = None, threading.Lock()

    @property
    def is_batched(self):
        """True if the function takes a list of inputs and returns a list of results."""
        return "batch_size" in self.options

    def with_context(self, **context):
        """The same function with other arguments of load(): another context."""
        return Function(self.infer, self.load, {**self.context, **context}, self.options, self.declares)

    def first_arguments(self):
        """What precedes the call's arguments: the value that load() returned, if there is a load()."""
        if self.load is None:
            return ()
        with self._lock:
            if self._state is None:
                made = self.load(**self.context)
                if inspect.isawaitable(made):
                    import asyncio

                    made = asyncio.run(_result_of(made))
                self._state = (made,)
        return self._state

    def __call__(self, *args, **kwargs):
        return self.infer(*self.first_arguments(), *args, **kwargs)

    def map(self, *iterables, client=None, **options):
        """All results, in order. `client`: default Client()."""
        if client is not None:
            return list(client.map(self, *iterables, **options))
        from ._client import Client

        with Client() as made:
            return list(made.map(self, *iterables, **options))

    def __getstate__(self):
        # The lock cannot be pickled, and the state is what each process makes itself.
        return {**self.__dict__, "_state": None, "_lock": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._lock = threading.Lock()


async def _result_of(awaitable):
    return await awaitable


def function(
    infer=None,
    /,
    *,
    load=None,
    context=None,
    requirements=None,
    python=None,
    weights=None,
    gpus=None,
    vram=None,
    memory=None,
    require=None,
    batch_size=None,
    timeout=None,
    secrets=None,
    keep=None,
    environment=None,
):
    """Marks a function that nodes can run.

    A function that is marked already keeps what it declares; what this declares is added, or replaces it.

    load: makes the state that stays in memory between calls; the function gets it as its first argument.
    context: keyword arguments of load().
    requirements: packages as pip names them. python: version, as "3.12".
    environment: in place of both, the path of an archive of conda-pack, .tar.zst, .tar.gz or .tar.
    weights: repositories of the hub, as "Qwen/Qwen3-8B@REVISION".
    gpus: GPUs of each process. vram: memory of each GPU, as "40 GiB". memory: main memory. require: as the header x-otela-require.
    batch_size: the function takes a list of up to so many inputs and returns as many results; "auto": calls grow until one takes a second.
    timeout: seconds that load() and one call may take.
    keep: seconds, or text as "2h", for which a process without calls stays loaded; default: 10 minutes.
    secrets: names of secrets that `otela secrets set` stored, as "HF_TOKEN". Its processes, and no others, get them as variables.
    """
    given = {"requirements": requirements, "python": python, "weights": weights, "gpus": gpus, "vram": vram, "memory": memory}
    given.update(require=require, batch_size=batch_size, timeout=timeout, secrets=secrets, keep=keep, environment=environment)
    given = {name: value for name, value in given.items() if value is not None}
    options = declared(given)

    def mark(infer):
        if not callable(infer):
            raise OtelaError("@opentela.function marks a function")
        if isinstance(infer, Function):
            return _marked_again(infer, load, context, given)
        return Function(infer, load, context, options, given)

    return mark if infer is None else mark(infer)


def _marked_again(function, load, context, given):
    declares = {**function.declares, **given}
    # Another load() has other arguments.
    kept = function.context if load is None else {}
    return Function(function.infer, load or function.load, {**kept, **(context or {})}, declared(declares), declares)


def as_function(value):
    return value if isinstance(value, Function) else Function(value)
