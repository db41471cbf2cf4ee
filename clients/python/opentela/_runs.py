"""A run as its owner sees it: the results of its calls, in order, with a progress bar."""

import collections
import os
import time
from concurrent.futures import as_completed

from ._errors import FunctionError
from ._progress import bar
from ._calls import has_result
from ._sender import LOG


class _Results:
    """A run at the gateway, as an iterator of its results."""

    def __init__(self, client, id, label, progress, return_exceptions, timeout):
        self.client, self.id = client, id
        self._label, self._progress, self._exceptions = label, progress, return_exceptions
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._bar = None

    def __iter__(self):
        return self

    def logs(self):
        """The last output of the run's calls, as text. Output of a call arrives with its result."""
        return self.client._logs(self.id)

    def cancel(self):
        """Ends the run at the gateway. Results that exist stay there."""
        self.client._cancel(self.id)

    def _result(self, future):
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        try:
            return future.result(left)
        except FunctionError as error:
            if not self._exceptions:
                raise
            return error
        except KeyboardInterrupt:
            LOG.warning("%s", self._goes_on())
            raise

    def _goes_on(self):
        return (
            f"run {self.id} continues at the gateway. Run the script again to collect its results, "
            f'or end it: opentela.Client().attach("{self.id}").cancel()'
        )


class Run(_Results):
    """The calls of one map(), or of an earlier process: an iterator of their results, in order."""

    def __init__(self, client, id, calls, label="", progress=None, return_exceptions=False, timeout=None):
        super().__init__(client, id, label, progress, return_exceptions, timeout)
        self.calls, self._next = calls, 0

    @property
    def futures(self):
        return [call.future for call in self.calls]

    @property
    def counts(self):
        """Calls in all, completed and failed."""
        over = [call.future for call in self.calls if call.future.done()]
        failed = sum(1 for future in over if future.cancelled() or future.exception() is not None)
        return {"total": len(self.calls), "completed": len(over) - failed, "failed": failed}

    def __len__(self):
        return len(self.calls)

    def __next__(self):
        self._show()
        if self._next >= len(self.calls):
            raise StopIteration
        result = self._result(self.calls[self._next].future)
        self._next += 1
        return result

    def as_completed(self):
        """The futures, as they end."""
        return as_completed(self.futures)

    def retry(self):
        """Sends the calls again that failed, but not those that waited for a failed call. Returns their number."""
        again = [index for index, call in enumerate(self.calls) if _may_run_again(call)]
        for index in again:
            self.calls[index] = self.calls[index].again()
        self.client._sender.add([self.calls[index] for index in again])
        self._next = min([self._next, *again])
        return len(again)

    def _show(self):
        if self._bar is None:
            self._bar = bar(len(self.calls), self._label, self._progress)
            left = [len(self.calls)]

            def ended(_):
                self._bar.update(1)
                left[0] -= 1
                if left[0] == 0:
                    self._bar.close()

            for call in self.calls:
                call.future.add_done_callback(ended)


class Stream(_Results):
    """The results of a map() with `buffersize`, in order. It takes inputs as it returns results, and keeps neither.

    start: starts up to so many of the next calls and returns them.
    """

    def __init__(self, client, id, start, size, label="", progress=None, return_exceptions=False, timeout=None):
        super().__init__(client, id, label, progress, return_exceptions, timeout)
        self._start, self._size, self._calls = start, size, collections.deque()
        self._sent = self._completed = self._failed = 0
        self._has_more = True
        self._fill()

    @property
    def counts(self):
        """Calls that were started, and those whose results were returned, by whether they failed."""
        return {"total": self._sent, "completed": self._completed, "failed": self._failed}

    def __next__(self):
        if self._bar is None:
            self._bar = bar(None, self._label, self._progress)
        if not self._calls:
            self._bar.close()
            raise StopIteration
        result = self._result(self._calls[0].future)
        is_failed = self._calls.popleft().future.exception() is not None
        self._completed += not is_failed
        self._failed += is_failed
        self._bar.update(1)
        self._fill()
        return result

    def _fill(self):
        # Half of the calls at once, so that batches are large.
        if self._has_more and len(self._calls) <= self._size // 2:
            wanted = self._size - len(self._calls)
            calls = self._start(wanted)
            self._calls.extend(calls)
            self._sent += len(calls)
            self._has_more = len(calls) == wanted


def _may_run_again(call):
    if not call.future.done() or has_result(call.future):
        return False
    return bool(call.text) or (call.template is not None and all(one.future.done() and has_result(one.future) for one in call.template.needs))


def new_run_id():
    return f"run-{os.urandom(8).hex()}"
