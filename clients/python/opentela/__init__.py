"""Runs your own Python function on every idle node of an OpenTela network that allows it.

    import opentela

    def load():                                   # once per node; its result stays there
        from transformers import pipeline
        return pipeline("text-classification", model="FacebookAI/roberta-large-mnli")

    @opentela.function(load=load)
    def verify(model, claims):                    # a list in, a list of the same length out
        return [model(claim)[0]["label"] for claim in claims]

    if __name__ == "__main__":
        print(verify.map(open("claims.txt").read().splitlines()))

The function's file is uploaded unchanged and imported on the nodes. Its imports must be available there, and code that must run only here
belongs under `if __name__ == "__main__"`. Arguments and results are JSON. OTELA_GATEWAY is the gateway's URL, OTELA_API_KEY the key.
"""

import http.client
import inspect
import json
import logging
import os
import time
import urllib.error
import urllib.request
import uuid

__all__ = ["Client", "Function", "FunctionError", "OtelaError", "function"]

ENDPOINT = "/v1/otela/functions"
# Limits of one batch.
LINES_MAX = 50_000
BYTES_MAX = 190_000_000
OVER = ("completed", "failed", "expired", "cancelled")
POLL_S = (0.2, 10.0)
# How long a batch may wait for its first node before a warning says so.
SILENT_S = 5
# How long requests are repeated while the gateway restarts or the network is down.
AWAY_S = 600
# How long the cancellation of an interrupted run may take.
CANCEL_S = 10
AWAY_STATUS = (429, 500, 502, 503, 504)


class OtelaError(Exception):
    """The gateway refused a request, or cannot be reached."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status


class FunctionError(Exception):
    """The function has no result for one input: it raised, or no node could run it. `code` is the line's error code."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


def function(load=None):
    """Decorates a function of (state, lines); `load()` makes the state, once per node."""

    def mark(infer):
        return Function(infer, load)

    return mark


class Function:
    def __init__(self, infer, load):
        self.infer, self.load = infer, load
        self.__name__, self.__doc__ = infer.__name__, infer.__doc__

    def __call__(self, state, lines):
        """Calls the function locally, for tests."""
        return self.infer(state, lines)

    def map(self, inputs, client=None, return_exceptions=False):
        """The results of all inputs, in order. Raises the first FunctionError; with `return_exceptions` each is returned as a result."""
        source = inspect.getsourcefile(self.infer)
        if source is None or not os.path.exists(source):
            raise OtelaError("the function must be defined in a file, because nodes import it")
        client = client or Client()
        with open(source, "rb") as file:
            code = client.upload(os.path.basename(source), file.read(), "user_data")
        try:
            results = client.run(f"function:{code}:{self.__name__}", list(inputs))
        finally:
            client.request("DELETE", f"/files/{code}")
        for result in results:
            if isinstance(result, FunctionError) and not return_exceptions:
                raise result
        return results


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the key to any host that a response names. A gateway never redirects this client."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


_LOG = logging.getLogger("opentela")
_OPENER = urllib.request.build_opener(_NoRedirects)


class Client:
    """A gateway and a key."""

    def __init__(self, gateway=None, api_key=None):
        gateway = gateway or os.environ.get("OTELA_GATEWAY")
        # A key file ends with a newline.
        self.api_key = (api_key or os.environ.get("OTELA_API_KEY") or "").strip()
        if not gateway or not self.api_key:
            raise OtelaError("the gateway or the key is missing: set OTELA_GATEWAY and OTELA_API_KEY, or use Client(gateway, api_key)")
        if not gateway.startswith(("https://", "http://")):
            raise OtelaError("the gateway must be a URL that begins with https:// or http://")
        if not self.api_key.isascii() or not self.api_key.isprintable():
            raise OtelaError("the key has characters that are not allowed in a key")
        gateway = gateway.rstrip("/")
        self.base = gateway if gateway.endswith("/v1") else gateway + "/v1"

    def request(self, method, path, body=None, content_type="application/json", read=bytes, found=None, away_s=AWAY_S):
        """Returns `read` of the response's bytes. Repeats the request while the gateway is unreachable or its response is incomplete.

        `found`: for a request that creates something. If the response was lost, the gateway may have created it, so `found()` looks
        for it before the request is repeated; None: it does not exist.
        """
        headers = {"authorization": f"Bearer {self.api_key}", "content-type": content_type}
        deadline, pause = time.monotonic() + away_s, 0.5
        while True:
            try:
                ask = urllib.request.Request(self.base + path, data=body, method=method, headers=headers)
                with _OPENER.open(ask, timeout=min(120, away_s)) as answer:
                    return read(answer.read())
            except urllib.error.HTTPError as error:
                if error.code not in AWAY_STATUS or time.monotonic() > deadline:
                    raise OtelaError(f"{method} {path}: {error.code} {error.read(2000).decode(errors='replace')}", error.code) from None
            # ValueError: an incomplete response is not valid JSON.
            except (OSError, http.client.HTTPException, ValueError) as error:
                if time.monotonic() > deadline:
                    raise OtelaError(f"{method} {path}: {error}") from error
            time.sleep(pause)
            pause = min(10.0, pause * 2)
            there = found() if found else None
            if there is not None:
                return there

    def upload(self, filename, content, purpose):
        """The id of the new file."""
        edge = uuid.uuid4().hex
        # https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data
        filename = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        # A unique name, by which the file is found if the response was lost. A second copy would never be deleted.
        stem, extension = os.path.splitext(filename)
        filename = f"{stem[:200]}-{edge}{extension}"
        head = (
            f'--{edge}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'
            f'--{edge}\r\ncontent-disposition: form-data; name="file"; filename="{filename}"\r\n'
            "content-type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + content + f"\r\n--{edge}--\r\n".encode()

        def found():
            newest = self.request("GET", "/files?limit=100", read=json.loads)["data"]
            return next((one for one in newest if edge in one["filename"]), None)

        return self.request("POST", "/files", body, f"multipart/form-data; boundary={edge}", read=json.loads, found=found)["id"]

    def run(self, model, inputs):
        """A result or a FunctionError for each input. Uses several batches, one after the other, if one is too small."""
        results = [FunctionError("the gateway returned no result for this input") for _ in inputs]
        lines, size = [], 0
        for index, value in enumerate(inputs):
            line = json.dumps({"custom_id": str(index), "method": "POST", "url": ENDPOINT, "body": {"model": model, "input": value}})
            if len(lines) == LINES_MAX or size + len(line) > BYTES_MAX:
                self._batch(lines, results)
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
        if lines:
            self._batch(lines, results)
        return results

    def _batch(self, lines, results):
        batch = self._create(self.upload("inputs.jsonl", "\n".join(lines).encode(), "batch"))
        pause, warn_at = POLL_S[0], time.monotonic() + SILENT_S
        try:
            while batch["status"] not in OVER:
                time.sleep(pause)
                pause = min(POLL_S[1], pause * 1.5)
                batch = self.request("GET", f"/batches/{batch['id']}", read=json.loads)
                if time.monotonic() > warn_at and _waits_for_a_node(batch):
                    _LOG.warning("%s waits: no node runs it yet. Functions run only on nodes that allow them (--allow-functions).", batch["id"])
                    warn_at = float("inf")
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            try:
                self.request("POST", f"/batches/{batch['id']}/cancel", away_s=CANCEL_S)
            except OtelaError:
                pass
            raise
        except OtelaError as error:
            raise OtelaError(f"{error}; {batch['id']} continues at the gateway", error.status) from error
        if batch["status"] == "failed":
            errors = (batch["errors"] or {}).get("data") or [{}]
            raise OtelaError(errors[0].get("message") or "the batch failed")
        for file in filter(None, (batch["output_file_id"], batch["error_file_id"])):
            # bytes.splitlines ignores line ends of Unicode, which JSON strings may contain unescaped.
            for line in self.request("GET", f"/files/{file}/content").splitlines():
                found = json.loads(line)
                results[int(found["custom_id"])] = _result(found)

    def _create(self, file):
        """The new batch. Its metadata names the run, so that it is found if the response was lost; a second batch would run all inputs again."""
        run = uuid.uuid4().hex
        ask = {"input_file_id": file, "endpoint": ENDPOINT, "completion_window": "24h", "metadata": {"opentela_run": run}}

        def found():
            newest = self.request("GET", "/batches?limit=100", read=json.loads)["data"]
            return next((one for one in newest if (one.get("metadata") or {}).get("opentela_run") == run), None)

        return self.request("POST", "/batches", json.dumps(ask).encode(), read=json.loads, found=found)


def _waits_for_a_node(batch):
    begun = (batch.get("request_counts") or {}).get("completed", 0)
    return batch["status"] == "in_progress" and not begun and (batch.get("x_otela") or {}).get("nodes") == 0


def _result(line):
    body = (line.get("response") or {}).get("body") or {}
    if "output" in body:
        return body["output"]
    error = line.get("error") or body.get("error") or {}
    return FunctionError(error.get("message") or "the gateway returned no result for this input", error.get("code"))
