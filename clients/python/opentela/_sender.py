"""The thread that sends calls to the gateway as batches, and brings their results as they come."""

import collections
import hashlib
import json
import logging
import threading
import time

from . import _files
from ._bundle import Bundle
from ._calls import AFTER_MAX
from ._earlier import Earlier
from ._errors import OtelaError
from ._sent import Sent
from ._served import Served

# Limits of one batch.
LINES_MAX = 50_000
BYTES_MAX = 190_000_000
# Calls that follow each other this closely are sent together, for at most the second time.
QUIET_S, GATHER_S = 0.05, 1.0
# More calls wait until one of this many batches ends.
BATCHES_MAX = 16
FUNCTION_FILE_S = 30 * 86_400
EXIT_S = 30

LOG = logging.getLogger("opentela")


class Sender:
    """Sends calls and brings results, in a thread."""

    def __init__(self, gateway, trust, reuse, window="24h"):
        self.gateway, self.trust, self.reuse, self.window = gateway, trust, reuse, window
        self.waiting, self.sent = collections.deque(), []
        # Ids of stored files by name, and the files that earlier runs stored.
        self.files, self.listed, self.uploading = {}, None, threading.Lock()
        self.earlier = {}
        self.wake = threading.Condition()
        self.added = self.first = 0.0
        self.closing = self.hurry = False
        # Number of calls that wait for the results of others.
        self.later = 0
        # False: the gateway is of an earlier version, and does not hold calls that need results.
        self.holds = True
        # True: each call that waits needs a result that is not there.
        self.blocked = False
        self.thread = None

    def expect(self, count):
        """So many calls will be added by `add_later`, or dropped by it."""
        with self.wake:
            if self.closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.later += count

    def add_later(self, call=None):
        with self.wake:
            self.later -= 1
            if call is not None:
                self.add([call], is_late=True)
            self.wake.notify_all()

    def add(self, calls, is_late=False):
        with self.wake:
            if self.closing and not is_late:
                raise RuntimeError("cannot schedule new futures after shutdown")
            now = time.monotonic()
            if not self.waiting:
                self.first = now
            self.waiting.extend(calls)
            self.added, self.blocked = now, False
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._loop, name="opentela", daemon=True)
                self.thread.start()
            self.wake.notify_all()

    def follow(self, id, calls):
        """Waits for the lines of a batch that another process sent."""
        with self.wake:
            self.sent.append(Sent(id, calls))
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._loop, name="opentela", daemon=True)
                self.thread.start()
            self.wake.notify_all()

    def flush(self, limit_s=EXIT_S):
        """Waits until the gateway has all calls."""
        with self.wake:
            self.hurry = True
            self.wake.notify_all()
            self.wake.wait_for(lambda: not self.waiting or self.blocked, limit_s)
            self.hurry = False

    def close(self, wait, cancel):
        with self.wake:
            self.closing = True
            dropped = list(self.waiting) if cancel else []
            if cancel:
                self.waiting.clear()
            self.wake.notify_all()
            sent = [one.id for one in self.sent if one.is_own]
        for call in dropped:
            if not call.future.cancel():
                call.fail(OtelaError("the client was shut down"))
        for id in sent if cancel else ():
            try:
                self.gateway.request("POST", f"/batches/{id}/cancel")
            except OtelaError as error:
                if error.status != 409:  # it has ended
                    raise
        if wait:
            with self.wake:
                self.wake.wait_for(lambda: not self.later)
            if self.thread is not None:
                self.thread.join()
        elif not cancel:
            self.flush()

    def _loop(self):
        while True:
            with self.wake:
                calls = self._due()
                needed = [one for one in self.sent if one.is_needed]
                if not calls and not needed and not self.waiting:
                    if self.closing and not self.later:
                        return
                    self.wake.wait(60)
                    continue
                polled = [one for one in needed if one.next <= time.monotonic()]
                if not calls and not polled:
                    self.wake.wait(self._pause(needed))
                    continue
            self._send_all(calls)
            for one in polled:
                self._poll(one)

    def _pause(self, needed):
        now = time.monotonic()
        ends = [one.next - now for one in needed]
        if self.waiting and not self.blocked and len(needed) < BATCHES_MAX:
            ends.append(QUIET_S)
        return max(0.01, min(ends, default=QUIET_S))

    def _due(self):
        """The calls to send now. They stay in `waiting` until they are sent, for `flush`."""
        now = time.monotonic()
        if not self.waiting or sum(one.is_own for one in self.sent) >= BATCHES_MAX:
            return []
        hurry = self.hurry or self.closing or len(self.waiting) >= LINES_MAX
        if not hurry and now - self.added < QUIET_S and now - self.first < GATHER_S:
            return []
        calls = [call for call in self.waiting if call.is_sendable(self.holds)]
        if self.blocked != (not calls):
            self.blocked = not calls
            self.wake.notify_all()
        return calls

    def _send_all(self, calls):
        groups = {}
        for call in calls:
            if call.future.running() or call.future.set_running_or_notify_cancel():
                groups.setdefault(call.group, []).append(call)
        held = set()
        for group in groups.values():
            try:
                held.update(map(id, self._send(group)))
            except Exception as error:
                for call in group:
                    call.fail(error)
        over = set(map(id, calls)) - held
        with self.wake:
            self.waiting = collections.deque(call for call in self.waiting if id(call) not in over)
            self.first = time.monotonic()
            self.wake.notify_all()

    def _poll(self, one):
        try:
            over = one.poll(self.gateway, self.trust)
        except Exception as error:
            one.fail(OtelaError(f"{error}; {one.id} continues at the gateway: run the script again to collect its results"))
            over = True
        if over:
            with self.wake:
                self.sent.remove(one)
                self.wake.notify_all()

    def _send(self, calls):
        """Returns the calls that must wait, because the gateway does not hold them."""
        first = calls[0]
        left = self._known(calls) if self.reuse and first.bundle else calls
        model = self._model(first) if left else ""
        lines, group, size, after, held = [], {}, 0, [], []

        def flush():
            if lines and not self._create(lines, group, first, after):
                held.extend(call for some in group.values() for call in some)

        for call in left:
            # If a needed call has failed, others may not be sent yet. `_line` fails such a call.
            batches = {one.place[0] for one in call.pending if one.place}
            if lines and len(batches.union(after)) > AFTER_MAX:
                flush()
                lines, group, size, after = [], {}, 0, []
            after.extend(sorted(batches.difference(after)))
            try:
                line = self._line(call, model, after)
            except Exception as error:
                call.fail(error)
                continue
            if lines and (len(lines) == LINES_MAX or size + len(line) > BYTES_MAX or call.key in group):
                flush()
                lines, group, size = [], {}, 0
            lines.append(line)
            group[call.key] = [call]
            size += len(line) + 1
        flush()
        return held

    def _line(self, call, model, after):
        text, waits = call.written(lambda one: [after.index(one.place[0]), one.place[1]])
        is_served = isinstance(call.bundle, Served)
        body = text if is_served else f'{{"model":{json.dumps(model)},"input":{text}{_files_of(call)}{_demands(call)}}}'
        more = f',"after":{json.dumps(waits)}' if waits else ""
        return f'{{"custom_id":"{call.key}","method":"POST","url":"{_endpoint(call)}","body":{body}{more}}}'

    def _create(self, lines, group, first, after):
        """False: the gateway does not hold these calls."""
        file = self.gateway.upload("inputs.jsonl", "\n".join(lines).encode(), "batch", FUNCTION_FILE_S)
        metadata = {"opentela_run": first.run}
        if first.bundle:
            metadata.update(opentela_context=first.bundle.context, opentela_function=first.bundle.name[:200])
        batch = self._created(_endpoint(first), file, metadata, after)
        if batch is None:
            for call in (call for some in group.values() for call in some):
                call.is_held = True
            return False
        for number, (call,) in enumerate(group.values()):
            call.place = (batch["id"], number)
        with self.wake:
            self.sent.append(Sent(batch["id"], group))
        return True

    def _created(self, endpoint, file, metadata, after):
        """The batch; None: the gateway does not wait for these batches."""
        if not after:
            return self.gateway.create_batch(endpoint, file, metadata, self.window)
        try:
            batch = self.gateway.create_batch(endpoint, file, metadata, self.window, after)
        except OtelaError as error:
            if error.status not in (400, 409):
                raise
            return None  # the chain is too long, or one of them has ended, so its results arrive here with the next poll
        if (batch.get("x_otela") or {}).get("after") == after:
            return batch
        self.holds = False
        self.gateway.request("POST", f"/batches/{batch['id']}/cancel")
        return None

    def _model(self, call):
        """How lines name the function. It is uploaded once."""
        if call.bundle is None or isinstance(call.bundle, Served):
            return call.model
        text = call.bundle.text_with(self._stored)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"function:{self._stored(f'function-{digest[:32]}', '.json', text.encode)}"

    def file(self, file):
        """The id of a File at the gateway. The same content is uploaded once, and a file of a result is there."""
        if isinstance(file, _files.ResultFile) and file.gateway is self.gateway:
            return file.id
        return self._stored(f"input-{file.digest()[:40]}", "", lambda: _read(file.path))

    def _stored(self, name, extension, content):
        with self.uploading:
            if name not in self.files:
                if self.listed is None:
                    self.listed = self.gateway.get("/files?limit=1000&purpose=user_data")["data"]
                # A file that soon expires could be gone before the gateway has read it.
                fresh = time.time() + 86_400
                known = (one["id"] for one in self.listed if one["filename"].startswith(name) and (one.get("expires_at") or fresh) >= fresh)
                self.files[name] = next(known, None) or self.gateway.upload(name + extension, content(), "user_data", FUNCTION_FILE_S)
            return self.files[name]

    def _known(self, calls):
        """Settles the calls that an earlier run answered, and follows those that one is running. Returns the others."""
        context = calls[0].bundle.context
        if context not in self.earlier:
            self.earlier[context] = self._search(context)
        results, running = self.earlier[context]
        left, count = [], 0
        for call in calls:
            line = results.line(call.key)
            if line is not None:
                call.settle(line, self.trust, self.gateway)
                count += 1
                continue
            for sent in running:
                # A batch that has ended took its calls along, and an input without a result runs again.
                if call.key in sent.calls and sent in self.sent:
                    sent.calls[call.key].append(call)
                    count += 1
                    break
            else:
                left.append(call)
        if count:
            LOG.info("%s of %s inputs were found in earlier runs", count, len(calls))
        return left

    def _search(self, context):
        """The results of earlier batches of this context, and its batches that are running."""
        results = Earlier(self.gateway, context)
        running = [Sent(id, {key: [] for key in keys}, is_own=False) for id, keys in results.running]
        with self.wake:
            self.sent.extend(running)
        return results, running


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _endpoint(call):
    return (call.bundle or Bundle).endpoint


def _files_of(call):
    return f',"files":{json.dumps(call.files)}' if call.files else ""


def _demands(call):
    require = call.bundle.function.options.get("require") if call.bundle else None
    return "" if require is None else f',"metadata":{{"otela_require":{json.dumps(require)}}}'
