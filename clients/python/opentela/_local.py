"""Runs calls in this process, in a thread: for tests, and for a first try without a gateway."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

from . import _files, _values
from ._errors import FunctionError
from ._worker import Failure, Worker, _pair, said

# Inputs of one call of a function with batch_size="auto".
AUTO = 100


def _path_of(file):
    return file.path


class LocalSender:
    """Has the methods of Sender that a Client uses. Arguments and results are pickled as for a node, so that a test finds what cannot be."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1, "opentela")
        self.workers, self.lock = {}, threading.Lock()
        # Number of calls that wait for the results of others.
        self.later, self.wake = 0, threading.Condition()

    def expect(self, count):
        with self.wake:
            self.later += count

    def add_later(self, call=None):
        if call is not None:
            self.add([call])
        with self.wake:
            self.later -= 1
            self.wake.notify_all()

    def add(self, calls):
        groups = {}
        for call in calls:
            groups.setdefault(call.bundle.context, []).append(call)
        for group in groups.values():
            size = group[0].bundle.function.options.get("batch_size", 1)
            size = AUTO if size == "auto" else size
            for at in range(0, len(group), size):
                self.pool.submit(self._run, group[at : at + size])

    def flush(self, _=None):
        pass

    def close(self, wait, cancel):
        if wait and not cancel:
            with self.wake:
                self.wake.wait_for(lambda: not self.later)
        self.pool.shutdown(wait, cancel_futures=cancel)

    def _run(self, calls):
        calls = [call for call in calls if call.future.set_running_or_notify_cancel()]
        if not calls:
            return
        try:
            worker = self._worker(calls[0].bundle)
            results = worker.call([_pair(json.loads(call.text)) for call in calls])
        except Exception as error:
            results = [Failure(error)] * len(calls)
        for call, result in zip(calls, results):
            try:
                if isinstance(result, Failure):
                    raise result.error
                sent = _values.encode(_files.marked(result, _path_of), worker.by_value)
                call.future.set_result(_files.placed(_values.decode(sent)))
            except Exception as error:
                # As from a node, so that a test sees the errors of a real run.
                failed = FunctionError(said(error), "function_failed")
                failed.__cause__ = error
                call.fail(failed)

    def _worker(self, bundle):
        with self.lock:
            if bundle.context not in self.workers:
                self.workers[bundle.context] = Worker(bundle.function)
            return self.workers[bundle.context]
