"""httpx transports, sync and async, for SDKs that take an httpx client."""

import json
import re
import time
from email.parser import BytesParser
from typing import AsyncIterator, Iterator, Mapping
from urllib.parse import quote

from ._httpx import httpx

from .errors import SealClientError
from .wire import AnswerOpener, Node, Sealed, believe, seal

_FRESH_S = 30
_LISTS_MAX = 64
_INSIDE = ("content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta")
_WITH = ("authorization", "x-api-key", "x-otela-trusted-providers", "x-otela-require", "x-otela-session")
_OUTSIDE = re.compile(r"authorization|x-api-key|x-request-id|traceparent|tracestate|x-otela-(?!seal|model$|stream$|resume$).*")
_FROM_GATEWAY = re.compile(r"x-request-id|request-id|retry-after|retry-after-ms|x-should-retry|server-timing|x-ratelimit-.*|x-otela-.*")
_STREAMS = {"chat/completions", "completions", "responses", "messages", "audio/transcriptions", "audio/translations"}
_PATHS = _STREAMS | {"embeddings", "rerank", "score", "classify", "tokenize", "detokenize", "audio/speech", "messages/count_tokens"}


class _Clear:
    """A request as its SDK made it."""

    def __init__(self, request: httpx.Request, body: bytes, resume: bool) -> None:
        path = request.url.path
        at = path.rfind("/v1/")
        name = path[at + 4 :]
        if request.method != "POST" or at < 0 or name not in _PATHS:
            raise SealClientError("not_sealable", f"{request.method} {path} cannot be sealed; nothing was sent.")
        fields = _fields(body, request.headers.get("content-type", ""))
        model = fields.get("model")
        if not isinstance(model, str) or not model:
            raise SealClientError("not_sealable", "The request names no model; nothing was sent.")
        self.request = request
        self.base = str(request.url.copy_with(path=path[:at] or "/", query=None)).rstrip("/")
        self.path = path[at:]
        self.model = self.asked = model
        self.form = request.headers.get("content-type", "").startswith("multipart/form-data")
        self.stream = name in _STREAMS and fields.get("stream") in (True, "true")
        self.resume = resume or request.headers.get("x-otela-resume") == "1"
        self.body = body
        self.inside = [(one, request.headers[one]) for one in _INSIDE if one in request.headers]

    def name(self, model: str, believed: bool) -> None:
        """Takes the model's own name, where the caller used another one and believes the gateway about it."""
        if model == self.model:
            return
        says = f"'{self.model}' is another name of '{model}', says the gateway, and no one signed that"
        if not believed:
            raise SealClientError("alias", f"{says}: name the model itself, or allow aliases. Nothing was sent.")
        if self.form:
            raise SealClientError("not_sealable", f"{says}; this form cannot be given that name.")
        self.model = model
        self.body = json.dumps({**json.loads(self.body), "model": model}, ensure_ascii=False).encode()

    def listing(self) -> httpx.Request:
        headers = {one: self.request.headers[one] for one in _WITH if one in self.request.headers}
        url = f"{self.base}/v1/otela/seal?model={quote(self.asked, safe='')}"
        return httpx.Request("GET", url, headers=headers, extensions=self.request.extensions)

    def sealed(self, nodes: list[Node]) -> tuple[httpx.Request, Sealed]:
        made = seal(self.path, self.model, self.stream, self.inside, self.body, nodes, time.time(), self.resume)
        headers = {name: value for name, value in self.request.headers.items() if _OUTSIDE.fullmatch(name)}
        request = httpx.Request(
            "POST", self.request.url, headers={**headers, **made.headers}, content=made.body, extensions=self.request.extensions
        )
        return request, made


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
        raise SealClientError("not_sealable", "The request is no JSON object; nothing was sent.")
    return value


class _Lists:
    """The model's own name and nodes that a request may be sealed to, for half a minute."""

    def __init__(self, pins: Mapping[str, str] | None, candidates: int, aliases: bool) -> None:
        if not 1 <= candidates <= 16:
            raise ValueError("candidates: from 1 to 16")
        self._pins = None if pins is None else dict(pins)
        self._count = candidates
        self._aliases = aliases
        self._known: dict[tuple[object, ...], tuple[float, str, list[Node]]] = {}

    @staticmethod
    def _name(clear: _Clear) -> tuple[object, ...]:
        return (clear.base, clear.asked, *(clear.request.headers.get(one) for one in _WITH))

    def known(self, clear: _Clear) -> list[Node] | None:
        at, model, nodes = self._known.get(self._name(clear), (-1e9, "", []))
        if time.monotonic() - at >= _FRESH_S:
            return None
        clear.name(model, self._aliases)
        return nodes

    def learn(self, clear: _Clear, content: bytes) -> list[Node]:
        name = self._name(clear)
        try:
            answer = json.loads(content)
            model, listed = str(answer["model"]), answer["data"]
            nodes = [node for one in listed if (node := believe(one, self._pins, time.time())) is not None]
        except (ValueError, KeyError, TypeError) as error:
            raise SealClientError("no_discovery", "The gateway names no nodes to seal to.") from error
        if not nodes:
            raise SealClientError("no_candidate", f"No node that serves '{clear.model}' is believed; nothing was sent.")
        if len(self._known) >= _LISTS_MAX:
            self._known.clear()
        self._known[name] = (time.monotonic(), model, nodes[: self._count])
        clear.name(model, self._aliases)
        return nodes[: self._count]


def _refused_list(response: httpx.Response) -> httpx.Response:
    if response.status_code == 404 and b"model_not_found" not in response.content:
        raise SealClientError("no_discovery", "This gateway does not know sealed requests; nothing was sent.")
    return _unauthenticated(response)


def _unauthenticated(response: httpx.Response) -> httpx.Response:
    response.headers["x-otela-unauthenticated"] = "1"
    return response


def _is_sealed(response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/otela-sealed")


def _answer(response: httpx.Response, first: tuple[str, object], stream: object) -> httpx.Response:
    kind, value = first
    if kind == "note":
        headers = {"content-type": "application/json", "x-otela-unauthenticated": "1"}
        return httpx.Response(502, headers=headers, content=str(value).encode())
    if kind != "head" or not isinstance(value, dict):
        raise SealClientError("not_opened", "The answer is not what a node sealed.")
    node: Node = value["node"]
    headers = {name: text for name, text in response.headers.items() if _FROM_GATEWAY.fullmatch(name)}
    headers.update(value["headers"])
    headers.update({"x-otela-node": node.session, "x-otela-provider": node.provider, "x-otela-sealed": node.mode})
    return httpx.Response(value["status"], headers=headers, stream=stream, extensions=response.extensions)  # type: ignore[arg-type]


def _bytes_of(event: tuple[str, object]) -> bytes:
    kind, value = event
    if kind == "note":
        raise SealClientError("gateway", f"The gateway says, and no one signed: {str(value)[:500]}")
    return value if isinstance(value, bytes) else b""


def _plain(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        raise SealClientError("plain_answer", "The gateway answered in clear what no node sealed; it is not believed.")
    return _unauthenticated(response)


class _Stream(httpx.SyncByteStream):
    def __init__(self, response: httpx.Response, events: Iterator[tuple[str, object]]) -> None:
        self._response = response
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        for event in self._events:
            if data := _bytes_of(event):
                yield data

    def close(self) -> None:
        self._response.close()


class SealedTransport(httpx.BaseTransport):
    """`pins`: root keys by provider, as `otela-agent vouch` prints them; None believes the gateway's word for the nodes' keys.
    `aliases`: other names of models are resolved as the gateway says. `resume`: streams go on at another candidate where their node is
    lost; the candidates can then read one another's answers."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        candidates: int = 3,
        transport: httpx.BaseTransport | None = None,
        aliases: bool = False,
        resume: bool = False,
    ) -> None:
        self._resume = resume
        self._lists = _Lists(pins, candidates, aliases)
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method in ("GET", "HEAD"):
            return self._transport.handle_request(request)
        clear = _Clear(request, request.read(), self._resume)
        response = self._send(clear, False)
        if isinstance(response, tuple) and response[0].status_code == 409:
            if b'"seal_stale"' in response[0].read():
                response = self._send(clear, True)
        if not isinstance(response, tuple):
            return response
        answer, sealed = response
        if not _is_sealed(answer):
            answer.read()
            return _plain(answer)
        events = self._open(answer, sealed)
        return _answer(answer, next(events), _Stream(answer, events))

    def _send(self, clear: _Clear, fresh: bool) -> httpx.Response | tuple[httpx.Response, Sealed]:
        nodes = None if fresh else self._lists.known(clear)
        if nodes is None:
            listed = self._transport.handle_request(clear.listing())
            listed.read()
            if not listed.is_success:
                return _refused_list(listed)
            nodes = self._lists.learn(clear, listed.content)
        request, sealed = clear.sealed(nodes)
        return self._transport.handle_request(request), sealed

    @staticmethod
    def _open(response: httpx.Response, sealed: Sealed) -> Iterator[tuple[str, object]]:
        opener = AnswerOpener(sealed)
        for piece in response.iter_raw():
            yield from opener.push(piece)
            if opener.ended:
                return
        opener.close()

    def close(self) -> None:
        self._transport.close()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response, events: AsyncIterator[tuple[str, object]]) -> None:
        self._response = response
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            if data := _bytes_of(event):
                yield data

    async def aclose(self) -> None:
        await self._response.aclose()


class AsyncSealedTransport(httpx.AsyncBaseTransport):
    """As `SealedTransport`, for `httpx.AsyncClient`."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        candidates: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
        aliases: bool = False,
        resume: bool = False,
    ) -> None:
        self._resume = resume
        self._lists = _Lists(pins, candidates, aliases)
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method in ("GET", "HEAD"):
            return await self._transport.handle_async_request(request)
        clear = _Clear(request, await request.aread(), self._resume)
        response = await self._send(clear, False)
        if isinstance(response, tuple) and response[0].status_code == 409:
            if b'"seal_stale"' in await response[0].aread():
                response = await self._send(clear, True)
        if not isinstance(response, tuple):
            return response
        answer, sealed = response
        if not _is_sealed(answer):
            await answer.aread()
            return _plain(answer)
        events = self._open(answer, sealed)
        return _answer(answer, await anext(events), _AsyncStream(answer, events))

    async def _send(self, clear: _Clear, fresh: bool) -> httpx.Response | tuple[httpx.Response, Sealed]:
        nodes = None if fresh else self._lists.known(clear)
        if nodes is None:
            listed = await self._transport.handle_async_request(clear.listing())
            await listed.aread()
            if not listed.is_success:
                return _refused_list(listed)
            nodes = self._lists.learn(clear, listed.content)
        request, sealed = clear.sealed(nodes)
        return await self._transport.handle_async_request(request), sealed

    @staticmethod
    async def _open(response: httpx.Response, sealed: Sealed) -> AsyncIterator[tuple[str, object]]:
        opener = AnswerOpener(sealed)
        async for piece in response.aiter_raw():
            for event in opener.push(piece):
                yield event
            if opener.ended:
                return
        opener.close()

    async def aclose(self) -> None:
        await self._transport.aclose()
