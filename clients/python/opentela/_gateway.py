"""Requests to a gateway."""

import hashlib
import http.client
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
import uuid

from ._errors import OtelaError

# How long requests are repeated while the gateway restarts or the network is down.
AWAY_S = 600
AWAY_STATUS = (429, 500, 502, 503, 504)
PIECE = 2**20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the key to any host that a response names. A gateway never redirects this client."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class Gateway:
    """A gateway and a key."""

    def __init__(self, gateway, api_key):
        # A key file ends with a newline.
        self.api_key = (api_key or "").strip()
        if not gateway or not self.api_key:
            raise OtelaError(
                "the gateway or the key is missing: set OTELA_GATEWAY and OTELA_API_KEY, or use Client(gateway, api_key); "
                "OTELA_GATEWAY=local runs functions in this process"
            )
        if not gateway.startswith(("https://", "http://")):
            raise OtelaError("the gateway must be a URL that begins with https:// or http://")
        if not self.api_key.isascii() or not self.api_key.isprintable():
            raise OtelaError("the key has characters that are not allowed in a key")
        gateway = gateway.rstrip("/")
        self.base = gateway if gateway.endswith("/v1") else gateway + "/v1"

    def request(self, method, path, body=None, content_type="application/json", read=bytes, found=None, away_s=AWAY_S, stream=None):
        """Returns `read` of the response's bytes, or `stream` of the response. Repeats the request while the gateway is unreachable or its response is incomplete.

        `found`: for a request that creates something. If the response was lost, the gateway may have created it, so `found()` looks
        for it before the request is repeated; None: it does not exist.
        """
        headers = {"authorization": f"Bearer {self.api_key}", "content-type": content_type}
        deadline, pause = time.monotonic() + away_s, 0.5
        while True:
            try:
                ask = urllib.request.Request(self.base + path, data=body, method=method, headers=headers)
                with _OPENER.open(ask, timeout=min(120, away_s)) as answer:
                    return stream(answer) if stream else read(answer.read())
            except urllib.error.HTTPError as error:
                text = error.read(2000).decode(errors="replace")
                # A quota is not an outage.
                if error.code not in AWAY_STATUS or "insufficient_quota" in text or time.monotonic() > deadline:
                    raise OtelaError(f"{method} {path}: {error.code} {_said(text)}", error.code) from None
            # ValueError: an incomplete response is not valid JSON.
            except (OSError, http.client.HTTPException, ValueError) as error:
                if time.monotonic() > deadline:
                    raise OtelaError(f"{method} {path}: {error}: check OTELA_GATEWAY ({self.base}) and the network") from error
            time.sleep(pause)
            pause = min(10.0, pause * 2)
            there = found() if found else None
            if there is not None:
                return there

    def get(self, path):
        return self.request("GET", path, read=json.loads)

    def download(self, id, path, size, sha256):
        """Writes a file of the gateway. @raises OtelaError if it is not the file with this hash"""

        def write(answer):
            digest, left = hashlib.sha256(), size
            with _Disk(path) as file:
                while piece := answer.read(PIECE):
                    left -= len(piece)
                    if left < 0:
                        break
                    file.write(piece)
                    digest.update(piece)
            if left > 0:
                raise ConnectionError("the response ended early")
            return left == 0 and digest.hexdigest() == sha256

        if not self.request("GET", f"/files/{id}/content", stream=write):
            os.unlink(path)
            raise OtelaError(f"the file {id} at the gateway is not the one that the call wrote")

    def upload(self, filename, content, purpose, expires_s=None):
        """The id of the new file."""
        edge = uuid.uuid4().hex
        # https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data
        filename = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        # A unique name, by which the file is found if the response was lost. A second copy would never be deleted.
        stem, extension = os.path.splitext(filename)
        filename = f"{stem[:200]}-{edge}{extension}"
        fields = {"purpose": purpose}
        if expires_s:
            fields.update({"expires_after[anchor]": "created_at", "expires_after[seconds]": str(expires_s)})
        head = "".join(f'--{edge}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()) + (
            f'--{edge}\r\ncontent-disposition: form-data; name="file"; filename="{filename}"\r\n'
            "content-type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + content + f"\r\n--{edge}--\r\n".encode()

        def found():
            newest = self.get("/files?limit=100")["data"]
            return next((one for one in newest if edge in one["filename"]), None)

        return self.request("POST", "/files", body, f"multipart/form-data; boundary={edge}", read=json.loads, found=found)["id"]

    def create_batch(self, endpoint, file, metadata, window, after=()):
        """The new batch, whose lines may need results of the batches `after`. Its metadata names it, so that it is found if the response was lost; a second batch would run all inputs again."""
        once = uuid.uuid4().hex
        ask = {"input_file_id": file, "endpoint": endpoint, "completion_window": window, "metadata": {**metadata, "opentela_once": once}}
        if after:
            ask["x_otela"] = {"after": list(after)}

        def found():
            newest = self.get("/batches?limit=100")["data"]
            return next((one for one in newest if (one.get("metadata") or {}).get("opentela_once") == once), None)

        return self.request("POST", "/batches", json.dumps(ask).encode(), read=json.loads, found=found)

    def batches(self, most):
        """The newest batches, at most `most`."""
        after, count = "", 0
        while count < most:
            page = self.get(f"/batches?limit=100{after}")
            yield from page["data"]
            count += len(page["data"])
            if not page.get("has_more") or not page["data"]:
                return
            after = f"&after={page['data'][-1]['id']}"

    def lines(self, file, may_lack=False):
        """The JSON lines of a file, one after another: it may have gigabytes. may_lack: a file that was deleted has no lines."""
        with tempfile.TemporaryFile() as disk:

            def copy(answer):
                disk.seek(0)
                disk.truncate()
                while piece := answer.read(PIECE):
                    on_disk(tempfile.gettempdir(), lambda: disk.write(piece))
                # Only a read of the whole response raises an error if the connection ends early.
                if answer.length:
                    raise ConnectionError("the response ended early")

            try:
                self.request("GET", f"/files/{file}/content", stream=copy)
            except OtelaError as error:
                if error.status != 404 or not may_lack:
                    raise
                return
            disk.seek(0)
            # Lines of a binary file end only with \n, not with the line ends of Unicode, which JSON strings may contain unescaped.
            for line in disk:
                yield json.loads(line)


def on_disk(path, act):
    """An error of this machine's disk is not one of the connection, after which the request would be repeated. @raises OtelaError"""
    try:
        return act()
    except OSError as error:
        raise OtelaError(f"{path} cannot be written: {error}") from error


class _Disk:
    """A new file."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = on_disk(self.path, lambda: open(self.path, "wb"))
        return self

    def __exit__(self, kind, value, trace):
        on_disk(self.path, self.file.close)

    def write(self, piece):
        on_disk(self.path, lambda: self.file.write(piece))


def _said(text):
    """The message of an error response."""
    try:
        return json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return text
