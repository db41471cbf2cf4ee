"""Requests of SDKs, and the nodes that they may be sealed to. No I/O."""

import json
import re
import time
from email.parser import BytesParser
from typing import Iterable, Mapping
from urllib.parse import urlencode

from ._httpx import httpx

from .errors import SealClientError
from .wire import Node, Sealed, believe, seal

_FRESH_S = 30
_LISTS_MAX = 64
_LIST_MAX_BYTES = 64 * 1024
CANDIDATES_MAX = 16
_INSIDE = ("content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta")
_WITH = ("authorization", "x-api-key", "x-otela-trusted-providers", "x-otela-require", "x-otela-prefer", "x-otela-session")
_PIN = re.compile(r"[A-Za-z0-9_-]{43}")
# Members of a body's `metadata` that gateways act on. They are therefore sent in clear text, too.
_ROUTING = re.compile(r"otela_(?:trusted_providers|require|prefer)")
_PRINTABLE = re.compile(r"[\x20-\x7e]{0,4096}")
_OUTSIDE = re.compile(r"authorization|x-api-key|x-request-id|traceparent|tracestate|x-otela-(?!seal|model$|stream$|resume$).*")
_STREAMS = {
    *{"chat/completions", "completions", "responses", "messages", "audio/transcriptions", "audio/translations"},
    *{"images/generations", "images/edits"},
}
_PATHS = {
    *_STREAMS,
    *{"embeddings", "rerank", "score", "classify", "pooling", "moderations", "tokenize", "detokenize"},
    *{"audio/speech", "images/variations", "messages/count_tokens", "videos/sync"},
}


class ClearRequest:
    """A request of an SDK, before it is sealed."""

    def __init__(self, request: httpx.Request, body: bytes, resume: bool) -> None:
        path = request.url.path
        at = path.rfind("/v1/")
        name = path[at + 4 :]
        if request.method != "POST" or at < 0 or name not in _PATHS:
            raise SealClientError("not_sealable", f"{request.method} {path} cannot be sealed. Nothing was sent.")
        fields = _fields(body, request.headers.get("content-type", ""))
        model = fields.get("model")
        if not isinstance(model, str) or not model:
            raise SealClientError("not_sealable", "The request names no model. Nothing was sent.")
        self.request = request
        self.headers = _routed(request.headers, fields.get("metadata"))
        self.base = str(request.url.copy_with(path=path[:at] or "/", query=None)).rstrip("/")
        self.path = path[at:]
        self.model = self.asked = model
        self.form = request.headers.get("content-type", "").startswith("multipart/form-data")
        self.stream = name in _STREAMS and fields.get("stream") in (True, "true")
        self.resume = resume or request.headers.get("x-otela-resume") == "1"
        self.body = body
        self.inside = [(one, request.headers[one]) for one in _INSIDE if one in request.headers]

    def name(self, model: str, believed: bool) -> None:
        """Replaces an alias by the model's canonical name if the caller trusts the gateway about aliases."""
        if model == self.model:
            return
        says = f"The gateway claims, without a signature, that '{self.model}' is an alias of '{model}'"
        if not believed:
            raise SealClientError("alias", f"{says}: name the model itself, or allow aliases. Nothing was sent.")
        if self.form:
            raise SealClientError("not_sealable", f"{says}; the body has no member 'model' that can be replaced. Nothing was sent.")
        self.model = model
        self.body = json.dumps({**json.loads(self.body), "model": model}, ensure_ascii=False).encode()

    def listing(self, providers: Iterable[str]) -> httpx.Request:
        headers = {one: self.headers[one] for one in _WITH if one in self.headers}
        # Names the pinned providers, because the gateway lists at most sixteen nodes, and others could fill the list.
        query = urlencode([("model", self.asked), *(("provider", one) for one in providers)])
        url = f"{self.base}/v1/otela/seal?{query}"
        return httpx.Request("GET", url, headers=headers, extensions=self.request.extensions)

    def sealed(self, nodes: list[Node]) -> tuple[httpx.Request, Sealed]:
        made = seal(self.path, self.model, self.stream, self.inside, self.body, nodes, time.time(), self.resume)
        return self._post(self.request.url, made), made

    def question(self, path: str, body: bytes, node: Node) -> tuple[httpx.Request, Sealed]:
        """Another request to one of the nodes, with the same API key."""
        made = seal(path, self.model, False, [("content-type", "application/json")], body, [node], time.time())
        return self._post(self.base + path, made), made

    def _post(self, url: httpx.URL | str, made: Sealed) -> httpx.Request:
        headers = {name: value for name, value in self.headers.items() if _OUTSIDE.fullmatch(name)}
        return httpx.Request(
            "POST", url, headers={**headers, **made.headers}, content=made.body, extensions=self.request.extensions
        )


def _routed(headers: httpx.Headers, metadata: object) -> httpx.Headers:
    """Copies routing from `metadata` into headers: the trusted providers, and the requirements of the node."""
    all_ = httpx.Headers(headers)
    for name, value in metadata.items() if isinstance(metadata, dict) else ():
        header = f"x-{name.replace('_', '-')}"
        if not _ROUTING.fullmatch(name) or value is None or all_.get(header) == value:
            continue
        if not isinstance(value, str) or header in all_ or not _PRINTABLE.fullmatch(value):
            raise SealClientError("not_sealable", f"metadata.{name} is not a string, or differs from {header}. Nothing was sent.")
        all_[header] = value
    return all_


def _fields(body: bytes, content_type: str) -> Mapping[str, object]:
    if content_type.startswith("multipart/form-data"):
        form = BytesParser().parsebytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + body)
        parts = form.get_payload() if form.is_multipart() else []
        named = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in parts}
        return {k: v.decode(errors="replace") for k, v in named.items() if isinstance(k, str) and k in ("model", "stream")}
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SealClientError("not_sealable", "The request is not a JSON object. Nothing was sent.")
    return value


class ListText:
    """Collects a gateway's list of nodes while it arrives, within a bound."""

    def __init__(self) -> None:
        self.content = b""

    def push(self, piece: bytes) -> None:
        self.content += piece
        if len(self.content) > _LIST_MAX_BYTES:
            raise SealClientError("no_discovery", "The list of nodes is too long.")


class CandidateLists:
    """Caches the model's canonical name and the nodes that a request may be sealed to, for 30 s."""

    def __init__(self, pins: Mapping[str, str] | None, candidates: int, aliases: bool) -> None:
        if not 1 <= candidates <= CANDIDATES_MAX:
            raise ValueError(f"candidates must be a number from 1 to {CANDIDATES_MAX}")
        self.pins = None if pins is None else dict(pins)
        for provider, pin in (self.pins or {}).items():
            if not _PIN.fullmatch(pin):
                raise ValueError(f"pins: {provider!r} has no key in the format of otela-agent vouch")
        self.count = candidates
        self._aliases = aliases
        self._known: dict[tuple[object, ...], tuple[float, str, list[Node]]] = {}

    @staticmethod
    def _name(clear: ClearRequest) -> tuple[object, ...]:
        return (clear.base, clear.asked, *(clear.headers.get(one) for one in _WITH))

    def known(self, clear: ClearRequest) -> list[Node] | None:
        at, model, nodes = self._known.get(self._name(clear), (-1e9, "", []))
        if time.monotonic() - at >= _FRESH_S:
            return None
        clear.name(model, self._aliases)
        return nodes

    def learn(self, clear: ClearRequest, content: bytes) -> list[Node]:
        name = self._name(clear)
        try:
            answer = json.loads(content)
            model, listed = str(answer["model"]), answer["data"]
            nodes = [node for one in listed if (node := believe(one, self.pins, time.time())) is not None]
        except (ValueError, KeyError, TypeError) as error:
            raise SealClientError("no_discovery", "The gateway returned no nodes to seal to.") from error
        if not nodes:
            raise SealClientError("no_candidate", f"No node that serves '{clear.model}' has a key that can be trusted. Nothing was sent.")
        if len(self._known) >= _LISTS_MAX:
            self._known.clear()
        self._known[name] = (time.monotonic(), model, nodes[:CANDIDATES_MAX])
        clear.name(model, self._aliases)
        return nodes[:CANDIDATES_MAX]
