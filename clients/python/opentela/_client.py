"""The client of functions."""

import atexit
import os
import sys
import threading
import weakref
from concurrent.futures import Executor

from . import _bundle, _values, _worker
from ._errors import OtelaError
from ._function import as_function
from ._gateway import Gateway
from ._local import LocalSender
from ._runs import Run, new_run_id
from ._sender import SEARCHED_MAX, Call, Sender, input_key

LOCAL = "local"
# A line has at most 4 MiB with its names.
TEXT_MAX = 4 * 2**20 - 4096
_OPEN = weakref.WeakSet()


class Client(Executor):
    """Runs functions on the nodes behind a gateway. A `concurrent.futures.Executor`.

    gateway: URL; default OTELA_GATEWAY. "local" runs functions in this process, and so does a pytest run without a gateway.
    api_key: default OTELA_API_KEY.
    trust_nodes: unpickle results of any type. A node could then run any code here.
    reuse: take results of earlier runs with the same function, context and input.
    progress: show a bar; default: on a terminal, with tqdm or rich.
    """

    def __init__(self, gateway=None, api_key=None, *, trust_nodes=None, reuse=True, progress=None):
        if _worker.ON_NODE:
            # A client at the top of a function's file. It starts nothing there.
            gateway = LOCAL
        gateway = gateway or os.environ.get("OTELA_GATEWAY") or (LOCAL if "PYTEST_CURRENT_TEST" in os.environ else None)
        self.is_local = gateway == LOCAL
        self.gateway = None if self.is_local else Gateway(gateway, api_key or os.environ.get("OTELA_API_KEY"))
        trust = os.environ.get("OTELA_TRUST_NODES") == "1" if trust_nodes is None else trust_nodes
        self.progress = progress
        self.run_id = new_run_id()
        self._sender = LocalSender() if self.is_local else Sender(self.gateway, trust, reuse)
        self._bundles, self._counts, self._lock = {}, {}, threading.Lock()
        _OPEN.add(self)

    def submit(self, function, /, *args, **kwargs):
        """A Future of function(*args, **kwargs). Calls that follow each other closely are sent together."""
        call = self._call(self._packed(as_function(function)), args, kwargs, self.run_id)
        self._sender.add([call])
        return call.future

    def map(self, function, /, *iterables, timeout=None, chunksize=1, progress=None, return_exceptions=False):
        """The results in order, as a Run. Raises the first FunctionError; with `return_exceptions` each is returned as a result."""
        bundle, run = self._packed(as_function(function)), new_run_id()
        calls = [self._call(bundle, args, {}, run) for args in zip(*iterables)]
        self._sender.add(calls)
        shown = self.progress if progress is None else progress
        return Run(self, run, calls, bundle.name, shown, return_exceptions, timeout)

    def attach(self, run_id, function=None):
        """The Run of an earlier or other process. With `function`, results may be of classes of its file."""
        if self.is_local:
            raise OtelaError("a local run ends with its process: use a gateway to attach to a run")
        batches = [one for one in self.gateway.batches(SEARCHED_MAX) if (one.get("metadata") or {}).get("opentela_run") == run_id]
        if not batches:
            raise OtelaError(f"there is no run {run_id!r} of this key's project, or it is older than {SEARCHED_MAX} batches: look at the batches")
        bundle = None if function is None else self._packed(as_function(function))
        calls = []
        for batch in sorted(batches, key=lambda one: (one["created_at"], one["id"])):
            waits = {}
            for line in self.gateway.lines(batch["input_file_id"]):
                body = line["body"]
                call = Call(bundle, line["custom_id"], _values.to_text(body["input"]), run_id, body["model"])
                call.future.set_running_or_notify_cancel()
                waits[call.key] = [call]
                calls.append(call)
            self._sender.follow(batch["id"], waits)
        return Run(self, run_id, calls, run_id, self.progress)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Sends what waits, and with `wait` waits for all results. `cancel_futures` ends the runs at the gateway."""
        self._sender.close(wait, cancel_futures)

    def __exit__(self, kind, value, trace):
        # After an exception, such as Ctrl-C, the runs continue at the gateway: the script does not wait for them.
        self.shutdown(wait=kind is None)
        return False

    def _cancel(self, run):
        for batch in self.gateway.batches(SEARCHED_MAX):
            if (batch.get("metadata") or {}).get("opentela_run") == run and batch["status"] in ("validating", "in_progress"):
                self.gateway.request("POST", f"/batches/{batch['id']}/cancel")

    def _packed(self, function):
        if _worker.ON_NODE:
            raise OtelaError("a function cannot start runs on a node: return its results, and start the next run in the script")
        known = self._bundles.get(id(function.infer))
        if known is not None and known.function.infer is function.infer and known.function.load is function.load:
            if known.function.context == function.context and known.function.options == function.options:
                return known
        bundle = _bundle.pack(function)
        self._bundles[id(function.infer)] = bundle
        return bundle

    def _call(self, bundle, args, kwargs, run):
        encoded = {"args": list(args), "kwargs": kwargs}
        if not _values.is_exact(encoded["args"]) or not _values.is_exact(kwargs):
            by_value = "__mp_main__" not in bundle.modules and "__main__" in bundle.modules
            try:
                encoded = _values.encode((args, kwargs), by_value)
            except TypeError:
                for name, value in (*enumerate(args, 1), *kwargs.items()):
                    try:
                        _values.encode(value, by_value)
                    except TypeError as error:
                        raise TypeError(f"argument {name} of {bundle.name}: {error}") from error
                raise
        text = _values.to_text(encoded)
        if len(text) > TEXT_MAX:
            raise OtelaError(
                f"the arguments of one call of {bundle.name} have {len(text)} bytes, and at most {TEXT_MAX} are possible: "
                "pass a path or an address, or put what all calls need into context="
            )
        with self._lock:
            counts = self._counts.setdefault(bundle.context, {})
            plain = input_key(text, 0)
            occurrence = counts.get(plain, 0)
            counts[plain] = occurrence + 1
        return Call(bundle, input_key(text, occurrence), text, run)


def _flush():
    """Calls of a script that ends without waiting are sent all the same."""
    for client in list(_OPEN):
        try:
            client._sender.flush()
        except Exception as error:
            print(f"opentela: {error}", file=sys.stderr)


atexit.register(_flush)
