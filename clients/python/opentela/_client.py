"""The client of functions."""

import atexit
import os
import sys
import threading
import weakref
from concurrent.futures import Executor
from itertools import islice

from . import _bundle, _files, _values, _worker
from ._calls import Call, Template, check_dependency, filled, futures_in, input_key
from ._earlier import SEARCHED_MAX
from ._errors import OtelaError
from ._function import as_function
from ._gateway import Gateway
from ._keys import KeyTable
from ._local import LocalSender
from ._runs import Run, Stream, new_run_id
from ._served import Served
from ._sender import Sender

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
    window: the time in which a run must end, from "1h" to "30d". Calls without a result then fail.
    """

    def __init__(self, gateway=None, api_key=None, *, trust_nodes=None, reuse=True, progress=None, window="24h"):
        if _worker.ON_NODE:
            # A client at the top of a function's file. It starts nothing there.
            gateway = LOCAL
        gateway = gateway or os.environ.get("OTELA_GATEWAY") or (LOCAL if "PYTEST_CURRENT_TEST" in os.environ else None)
        self.is_local = gateway == LOCAL
        self.gateway = None if self.is_local else Gateway(gateway, api_key or os.environ.get("OTELA_API_KEY"))
        trust = os.environ.get("OTELA_TRUST_NODES") == "1" if trust_nodes is None else trust_nodes
        self.progress = progress
        self.run_id = new_run_id()
        self._sender = LocalSender() if self.is_local else Sender(self.gateway, trust, reuse, window)
        self._bundles, self._counts, self._lock = {}, {}, threading.Lock()
        _OPEN.add(self)

    def submit(self, function, /, *args, after=(), **kwargs):
        """A Future of function(*args, **kwargs). Calls that follow each other closely are sent together.

        An argument may be a Future, or a list, tuple or dict with some: the call is sent when they have results, and gets them.
        after: Futures that must have results before the call is sent.
        """
        return self._start(self._packed(function), [(args, kwargs)], self.run_id, after)[0].future

    def map(self, function, /, *iterables, after=(), timeout=None, chunksize=1, buffersize=None, progress=None, return_exceptions=False):
        """The results in order, as a Run. Raises the first FunctionError; with `return_exceptions` each is returned as a result.

        Inputs may be Futures, as `run.futures`. after: as for submit().
        buffersize: for inputs that memory does not hold: a Stream, which has at most so many calls whose results were not returned.
        """
        bundle, run, inputs = self._packed(function), new_run_id(), zip(*iterables)
        shown = self.progress if progress is None else progress
        after = list(after)

        def start(most):
            return self._start(bundle, [(args, {}) for args in islice(inputs, most)], run, after)

        if buffersize is None:
            return Run(self, run, start(None), bundle.name, shown, return_exceptions, timeout)
        if not isinstance(buffersize, int) or buffersize < 1:
            raise OtelaError(f"buffersize={buffersize!r} must be a whole number from 1 on")
        return Stream(self, run, start, buffersize, bundle.name, shown, return_exceptions, timeout)

    def attach(self, run_id, function=None):
        """The Run of an earlier or other process. With `function`, results may be of classes of its file."""
        if self.is_local:
            raise OtelaError("a local run ends with its process: use a gateway to attach to a run")
        batches = [one for one in self.gateway.batches(SEARCHED_MAX) if (one.get("metadata") or {}).get("opentela_run") == run_id]
        if not batches:
            raise OtelaError(f"there is no run {run_id!r} of this key's project, or it is older than {SEARCHED_MAX} batches: look at the batches")
        bundle = None if function is None else self._packed(function)
        calls = []
        for batch in sorted(batches, key=lambda one: (one["created_at"], one["id"])):
            waits = {}
            for line in self.gateway.lines(batch["input_file_id"]):
                body = line["body"]
                # A line that got results from the gateway is not sent again by this process.
                text = None if (batch.get("x_otela") or {}).get("after") else _values.to_text(body.get("input", body))
                call = Call(bundle, line["custom_id"], text, run_id, body["model"], body.get("files") or ())
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

    def _batches_of(self, run):
        if self.is_local:
            raise OtelaError("a local run has no batches: its output is that of this process")
        return [one for one in self.gateway.batches(SEARCHED_MAX) if (one.get("metadata") or {}).get("opentela_run") == run]

    def _logs(self, run):
        return "".join(self.gateway.get(f"/batches/{one['id']}/log")["text"] for one in reversed(self._batches_of(run)))

    def _cancel(self, run):
        for batch in self._batches_of(run):
            if batch["status"] in ("validating", "in_progress"):
                self.gateway.request("POST", f"/batches/{batch['id']}/cancel")

    def _start(self, bundle, inputs, run, after):
        """The calls of these inputs. Those that wait for no other call are sent."""
        after, calls, ready = list(after), [], []
        for args, kwargs in inputs:
            awaited = [*after, *futures_in((args, kwargs))]
            template = self._template(bundle, args, kwargs, after) if awaited else None
            if template is not None:
                call = Call(bundle, self._key(bundle, template.identity()), None, run, files=template.files, template=template)
            else:
                call = Call(bundle, None, None, run) if awaited else self._call(bundle, args, kwargs, run)
            call.future.sender = self._sender
            calls.append(call)
            if awaited and template is None:
                self._sender.expect(1)
                self._wait(call, args, kwargs, awaited)
            else:
                ready.append(call)
        if ready:
            self._sender.add(ready)
        return calls

    def _wait(self, call, args, kwargs, awaited):
        left, lock = [len(awaited)], threading.Lock()

        def ended(_):
            with lock:
                left[0] -= 1
                if left[0]:
                    return
            try:
                for future in awaited:
                    check_dependency(call.future.function, future)
                made = self._call(call.bundle, filled(args, _result), filled(kwargs, _result), call.run)
                call.key, call.text, call.files = made.key, made.text, made.files
            except Exception as error:
                call.fail(error)
                self._sender.add_later()
            else:
                self._sender.add_later(call)

        for future in awaited:
            future.add_done_callback(ended)

    def _packed(self, function):
        if isinstance(function, Served):
            if self.is_local:
                raise OtelaError(f"{function.name} is served by a gateway: a local run needs a function in its place")
            return function
        function = as_function(function)
        if _worker.ON_NODE:
            raise OtelaError("a function cannot start runs on a node: return its results, and start the next run in the script")
        known = self._bundles.get(id(function.infer))
        if known is not None and known.function.infer is function.infer and known.function.load is function.load:
            if known.function.context == function.context and known.function.options == function.options:
                return known
        bundle = _bundle.pack(function)
        self._bundles[id(function.infer)] = bundle
        return bundle

    def _template(self, bundle, args, kwargs, after):
        """None: the script holds the call until its Futures have results."""
        if self.is_local or not self._sender.holds:
            return None

        def is_ours(future):
            return getattr(future, "sender", None) is self._sender

        if isinstance(bundle, Served):
            return Template.of(bundle.shape(args, kwargs), after, lambda: (bundle.text(filled(args, _result), kwargs), ()), is_ours, is_function=False)
        files = []
        args, kwargs = self._with_files(args, kwargs, files)

        def encode():
            text, more = self._text(bundle, filled(args, _result), filled(kwargs, _result))
            return text, sorted({*files, *more})

        return Template.of({"args": list(args), "kwargs": kwargs}, after, encode, is_ours, files, id_of=self._sender.file)

    def _call(self, bundle, args, kwargs, run):
        text, files = self._text(bundle, args, kwargs)
        return Call(bundle, self._key(bundle, text), text, run, files=files)

    def _text(self, bundle, args, kwargs):
        """The input of a line, or its body for a served model; and the ids of the files in it."""
        files = []
        text = bundle.text(args, kwargs) if isinstance(bundle, Served) else self._encoded(bundle, *self._with_files(args, kwargs, files))
        if len(text) > TEXT_MAX:
            raise OtelaError(
                f"the arguments of one call of {bundle.name} have {len(text)} bytes, and at most {TEXT_MAX} are possible: "
                "pass a path or an address, or put what all calls need into context="
            )
        return text, sorted(set(files))

    def _key(self, bundle, text):
        with self._lock:
            counts = self._counts.setdefault(bundle.context, KeyTable("I"))
            plain = input_key(text, 0)
            occurrence = counts.get(plain, 0)
            counts[plain] = occurrence + 1
        return input_key(text, occurrence)

    def _with_files(self, args, kwargs, files):
        """The arguments with marks of their Files, whose ids are added to `files`."""

        def name_of(file):
            if self.is_local:
                return file.path
            files.append(self._sender.file(file))
            return files[-1]

        return _files.marked(args, name_of), _files.marked(kwargs, name_of)

    def _encoded(self, bundle, args, kwargs):
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
        return _values.to_text(encoded)


def _result(future):
    return future.result()


def _flush():
    """Calls of a script that ends without waiting are sent all the same."""
    for client in list(_OPEN):
        try:
            client._sender.flush()
        except Exception as error:
            print(f"opentela: {error}", file=sys.stderr)


atexit.register(_flush)
