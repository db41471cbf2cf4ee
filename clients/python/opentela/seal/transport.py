"""httpx transports, sync and async, for SDKs that accept an httpx client."""

import re
from inspect import isawaitable
from typing import AsyncIterator, Iterator, Mapping

from ._httpx import httpx

from .answer import AnswerOpener
from .errors import SealClientError
from .evidence import UNPROVEN, AsyncEvidenceVerifier, Evidence, EvidenceVerifier, Judged, Question
from .requests import CandidateLists, ClearRequest, ListText
from .wire import Node, Sealed

_FROM_GATEWAY = re.compile(r"x-request-id|request-id|retry-after|retry-after-ms|x-should-retry|server-timing|x-ratelimit-.*|x-otela-.*|deprecation|sunset|link")

# The only headers that are taken from a node. Not `location`: clients would follow it and send their key to a host of the provider's choice.
_FROM_NODE = ("content-type", "content-encoding", "content-disposition")


def _refused_list(response: httpx.Response, content: bytes) -> httpx.Response:
    if response.status_code == 404 and b"model_not_found" not in content:
        raise SealClientError("no_discovery", "This gateway does not support sealed requests. Nothing was sent.")
    headers = {name: value for name, value in response.headers.items() if _FROM_GATEWAY.fullmatch(name)}
    headers["content-type"] = response.headers.get("content-type", "")
    return _unauthenticated(httpx.Response(response.status_code, headers=headers, content=content))


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
        raise SealClientError("not_opened", "The response was not sealed by a node.")
    node: Node = value["node"]
    headers = {name: text for name, text in response.headers.items() if _FROM_GATEWAY.fullmatch(name)}
    headers.update({name: text for name, text in value["headers"] if name in _FROM_NODE})
    headers.update({"x-otela-node": node.session, "x-otela-provider": node.provider, "x-otela-sealed": node.mode})
    return httpx.Response(value["status"], headers=headers, stream=stream, extensions=response.extensions)  # type: ignore[arg-type]


def _bytes_of(event: tuple[str, object]) -> bytes:
    kind, value = event
    if kind == "note":
        raise SealClientError("gateway", f"The gateway says (no node signed this, so it may be false): {str(value)[:500]}")
    return value if isinstance(value, bytes) else b""


def _not_believed() -> SealClientError:
    return SealClientError("plain_answer", "The gateway sent an unsealed response. It is not trusted.")


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
    """`pins`: root keys by provider, as `otela-agent vouch` prints them; None: trusts the gateway about the nodes' keys.
    `aliases`: resolve aliases of models as the gateway says. `resume`: if the node of a stream is lost, the stream continues at another
    candidate; the candidates can then read each other's responses. `verifier`: seal only to nodes with evidence that it accepts."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        candidates: int = 3,
        transport: httpx.BaseTransport | None = None,
        aliases: bool = False,
        resume: bool = False,
        verifier: EvidenceVerifier | None = None,
    ) -> None:
        self._resume = resume
        self._lists = CandidateLists(pins, candidates, aliases)
        self._verifier = verifier
        self._judged = Judged()
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method in ("GET", "HEAD"):
            return self._transport.handle_request(request)
        clear = ClearRequest(request, request.read(), self._resume)
        response = self._send(clear, False)
        if isinstance(response, tuple) and response[0].status_code == 409 and not _is_sealed(response[0]):
            if b'"seal_stale"' in response[0].read():
                response = self._send(clear, True)
        if not isinstance(response, tuple):
            return response
        answer, sealed = response
        if not _is_sealed(answer):
            # The body is not read, because it may be endless.
            if answer.is_success:
                answer.close()
                raise _not_believed()
            answer.read()
            return _unauthenticated(answer)
        events = self._open(answer, sealed)
        try:
            return _answer(answer, next(events), _Stream(answer, events))
        except BaseException:
            # The caller gets no response to close, and the pool would lose a connection.
            answer.close()
            raise

    def _send(self, clear: ClearRequest, fresh: bool) -> httpx.Response | tuple[httpx.Response, Sealed]:
        believed = None if fresh else self._lists.known(clear)
        if believed is None:
            listed = self._transport.handle_request(clear.listing(self._lists.pins or ()))
            text = ListText()
            try:
                for piece in listed.iter_bytes():
                    text.push(piece)
            finally:
                listed.close()
            if not listed.is_success:
                return _refused_list(listed, text.content)
            believed = self._lists.learn(clear, text.content)
        request, sealed = clear.sealed(self._among(clear, believed))
        return self._transport.handle_request(request), sealed

    def _among(self, clear: ClearRequest, believed: list[Node]) -> list[Node]:
        """The first `count` nodes; with a verifier, of those that it accepts."""
        if self._verifier is None:
            return believed[: self._lists.count]
        good: list[Node] = []
        why: Exception | None = None
        for node in filter(lambda one: one.evidence, believed):
            verdict = self._judged.known(clear, node)
            if verdict is None:
                try:
                    verdict = self._judged.learn(node, self._verifier.verify(self._evidence(clear, node)) is True)
                except Exception as error:  # Also the verifier's own errors, because it accepted nothing.
                    verdict = self._judged.fail(clear, node, error)
            if verdict is True:
                good.append(node)
            elif isinstance(verdict, Exception):
                why = verdict
            if len(good) == self._lists.count:
                break
        if not good:
            raise SealClientError("no_candidate", UNPROVEN) from why
        return good

    def _evidence(self, clear: ClearRequest, node: Node) -> Evidence:
        question = Question(clear, node)
        answer = self._transport.handle_request(question.request)
        try:
            if _is_sealed(answer):
                for piece in answer.iter_raw():
                    if question.push(piece):
                        break
            return question.evidence()
        finally:
            answer.close()

    @staticmethod
    def _open(response: httpx.Response, sealed: Sealed) -> Iterator[tuple[str, object]]:
        opener = AnswerOpener(sealed)
        for piece in response.iter_raw():
            # The response is read to its end, so that the connection is reused; bytes after it are ignored.
            if opener.ended:
                return
            yield from opener.push(piece)
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
    """Like `SealedTransport`, for `httpx.AsyncClient`. The verifier's `verify` may be a coroutine."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        candidates: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
        aliases: bool = False,
        resume: bool = False,
        verifier: AsyncEvidenceVerifier | None = None,
    ) -> None:
        self._resume = resume
        self._lists = CandidateLists(pins, candidates, aliases)
        self._verifier = verifier
        self._judged = Judged()
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method in ("GET", "HEAD"):
            return await self._transport.handle_async_request(request)
        clear = ClearRequest(request, await request.aread(), self._resume)
        response = await self._send(clear, False)
        if isinstance(response, tuple) and response[0].status_code == 409 and not _is_sealed(response[0]):
            if b'"seal_stale"' in await response[0].aread():
                response = await self._send(clear, True)
        if not isinstance(response, tuple):
            return response
        answer, sealed = response
        if not _is_sealed(answer):
            if answer.is_success:
                await answer.aclose()
                raise _not_believed()
            await answer.aread()
            return _unauthenticated(answer)
        events = self._open(answer, sealed)
        try:
            return _answer(answer, await anext(events), _AsyncStream(answer, events))
        except BaseException:
            await answer.aclose()
            raise

    async def _send(self, clear: ClearRequest, fresh: bool) -> httpx.Response | tuple[httpx.Response, Sealed]:
        believed = None if fresh else self._lists.known(clear)
        if believed is None:
            listed = await self._transport.handle_async_request(clear.listing(self._lists.pins or ()))
            text = ListText()
            try:
                async for piece in listed.aiter_bytes():
                    text.push(piece)
            finally:
                await listed.aclose()
            if not listed.is_success:
                return _refused_list(listed, text.content)
            believed = self._lists.learn(clear, text.content)
        request, sealed = clear.sealed(await self._among(clear, believed))
        return await self._transport.handle_async_request(request), sealed

    async def _among(self, clear: ClearRequest, believed: list[Node]) -> list[Node]:
        if self._verifier is None:
            return believed[: self._lists.count]
        good: list[Node] = []
        why: Exception | None = None
        for node in filter(lambda one: one.evidence, believed):
            verdict = self._judged.known(clear, node)
            if verdict is None:
                try:
                    verdict = self._judged.learn(node, await self._takes(self._verifier, clear, node))
                except Exception as error:  # Also the verifier's own errors, because it accepted nothing.
                    verdict = self._judged.fail(clear, node, error)
            if verdict is True:
                good.append(node)
            elif isinstance(verdict, Exception):
                why = verdict
            if len(good) == self._lists.count:
                break
        if not good:
            raise SealClientError("no_candidate", UNPROVEN) from why
        return good

    async def _takes(self, verifier: AsyncEvidenceVerifier, clear: ClearRequest, node: Node) -> bool:
        verdict = verifier.verify(await self._evidence(clear, node))
        return (await verdict if isawaitable(verdict) else verdict) is True

    async def _evidence(self, clear: ClearRequest, node: Node) -> Evidence:
        question = Question(clear, node)
        answer = await self._transport.handle_async_request(question.request)
        try:
            if _is_sealed(answer):
                async for piece in answer.aiter_raw():
                    if question.push(piece):
                        break
            return question.evidence()
        finally:
            await answer.aclose()

    @staticmethod
    async def _open(response: httpx.Response, sealed: Sealed) -> AsyncIterator[tuple[str, object]]:
        opener = AnswerOpener(sealed)
        async for piece in response.aiter_raw():
            if opener.ended:
                return
            for event in opener.push(piece):
                yield event
        opener.close()

    async def aclose(self) -> None:
        await self._transport.aclose()
