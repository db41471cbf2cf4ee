"""A batch at the gateway, and the calls that wait for its lines."""

import logging
import time

from ._errors import FunctionError, OtelaError

OVER = ("completed", "failed", "expired", "cancelled")
POLL_S = (0.2, 5.0)
# Before the first result, which may follow within a second.
FIRST_POLL_S = 0.05
# A result is seen late by at most this share of the time for which it was awaited.
POLL_SHARE = 0.03
# How long a batch may wait for its first node before a warning says so.
SILENT_S = 5
# Then the reason may have changed.
WARN_S = 30

LOG = logging.getLogger("opentela")


class Sent:
    """`is_own`: this process created the batch."""

    def __init__(self, id, calls, is_own=True):
        self.id, self.calls, self.is_own = id, calls, is_own
        self.after, self.next, self.news_at, self.has_news = "0", 0.0, time.monotonic(), False
        self.warn_at, self.warned = time.monotonic() + SILENT_S, ""

    @property
    def is_needed(self):
        """False for a batch of another process for whose lines no call waits yet."""
        return self.is_own or any(self.calls.values())

    def poll(self, gateway, trust):
        """Takes the results that are new. True: the batch has ended, and each call has a result."""
        news = False
        while True:
            status, page = self._page(gateway)
            for line in page["data"]:
                news = True
                self._settle(line, trust, gateway)
            if not page["has_more"]:
                break
        if status["status"] in OVER:
            self._end(gateway, status, trust)
            return True
        if not news and time.monotonic() > self.warn_at:
            self._warn(gateway)
        now = time.monotonic()
        self.news_at, self.has_news = (now, True) if news else (self.news_at, self.has_news)
        least = POLL_S[0] if self.has_news else FIRST_POLL_S
        self.next = now + min(POLL_S[1], max(least, POLL_SHARE * (now - self.news_at)))
        return False

    def _page(self, gateway):
        """The batch with its status, and the next lines."""
        try:
            page = gateway.get(f"/batches/{self.id}/results?after={self.after}")
            self.after = page["after"]
            return page["batch"], page
        except OtelaError as error:
            if error.status != 404:
                raise
        # A gateway of an earlier version.
        return gateway.get(f"/batches/{self.id}"), {"data": [], "has_more": False}

    def _settle(self, line, trust, gateway):
        for call in self.calls.pop(line.get("custom_id"), ()):
            call.settle(line, trust, gateway)

    def _end(self, gateway, batch, trust):
        if batch["status"] == "failed":
            errors = (batch.get("errors") or {}).get("data") or [{}]
            self.fail(OtelaError(errors[0].get("message") or f"{self.id} failed"))
        for file in filter(None, (batch.get("output_file_id"), batch.get("error_file_id"))):
            if not self.calls:
                return
            for line in gateway.lines(file):
                self._settle(line, trust, gateway)
        self.fail(FunctionError(f"{self.id} is {batch['status']}, and has no result for this input: run the script again"))

    def fail(self, error):
        for calls in self.calls.values():
            for call in calls:
                call.fail(error)
        self.calls = {}

    def _warn(self, gateway):
        self.warn_at = time.monotonic() + WARN_S
        batch = gateway.get(f"/batches/{self.id}")
        begun = (batch.get("request_counts") or {}).get("completed", 0)
        more = batch.get("x_otela") or {}
        if batch["status"] == "in_progress" and not begun and more.get("nodes") == 0:
            why = more.get("waiting_for") or "no node runs it yet. Functions run only on nodes that allow them (--allow-functions)."
            if why != self.warned:
                LOG.warning("%s waits: %s", self.id, why)
            self.warned = why
