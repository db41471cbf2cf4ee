"""Drives the Python openai SDK through sealing transports. Arguments: base URL, key, model, provider, root key. Prints one JSON object."""
import asyncio
import json
import sys

import openai
from opentela.seal import AsyncSealedTransport, SealClientError, SealedTransport
from opentela.seal._httpx import httpx
from opentela.seal.wire import SEALED_TYPE

base, key, model, provider, pin = sys.argv[1:]
pins = {provider: pin}
user = [{"role": "user", "content": "python-canary-41c7"}]


def client(pinned=pins, **options):
    transport = SealedTransport(pins=pinned, **options)
    return openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=httpx.Client(transport=transport))


class Plain(httpx.BaseTransport):
    """A gateway that answers in plain text. Reading more than the first byte of it is an error."""

    def __init__(self):
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request):
        if request.method == "GET":
            return self._inner.handle_request(request)

        def pieces():
            yield b" "
            raise RuntimeError("it was read")

        return httpx.Response(200, content=pieces())


class AsyncPlain(httpx.AsyncBaseTransport):
    def __init__(self):
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        if request.method == "GET":
            return await self._inner.handle_async_request(request)

        async def pieces():
            yield b" "
            raise RuntimeError("it was read")

        return httpx.Response(200, content=pieces())


class Endless(httpx.BaseTransport):
    """A gateway with an endless list of nodes."""

    def handle_request(self, request):
        def pieces():
            while True:
                yield b" " * 65_536

        return httpx.Response(200, content=pieces())


class Garbage(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A response that no node sealed. The gateway goes on sending."""

    closed = 0

    def __iter__(self):
        while True:
            yield b"\xff" * 64

    async def __aiter__(self):
        while True:
            yield b"\xff" * 64

    def close(self):
        Garbage.closed += 1

    async def aclose(self):
        Garbage.closed += 1


def unsealed():
    return httpx.Response(200, headers={"content-type": SEALED_TYPE}, stream=Garbage())


class Unsealed(httpx.BaseTransport):
    def __init__(self):
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request):
        return self._inner.handle_request(request) if request.method == "GET" else unsealed()


class AsyncUnsealed(httpx.AsyncBaseTransport):
    def __init__(self):
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        return await self._inner.handle_async_request(request) if request.method == "GET" else unsealed()


def error(call):
    try:
        call()
    except SealClientError as caught:
        return caught.code
    except openai.APIError as caught:
        cause = caught.__cause__
        return cause.code if isinstance(cause, SealClientError) else getattr(caught, "code", None)
    except ValueError as caught:
        return str(caught)
    return None


out = {}
sync = client()
whole = sync.chat.completions.with_raw_response.create(messages=user, model=model, max_tokens=5)
out["chat"] = [whole.parse().choices[0].message.content, whole.headers["x-otela-sealed"]]
chunks = list(sync.chat.completions.create(messages=user, model=model, max_tokens=5, stream=True))
out["stream"] = "".join(c.choices[0].delta.content or "" for c in chunks)
out["embeddings"] = [len(e.embedding) for e in sync.embeddings.create(model=model, input=["a" * 40_000, "b"]).data]
out["models"] = [m.id for m in sync.models.list()]
out["bad request"] = error(lambda: sync.chat.completions.create(messages=user, model=model, extra_body={"stand_in": {"status": 400}}))
out["not found"] = error(lambda: sync.chat.completions.create(messages=user, model="nobody/serves-this"))
out["other root"] = error(lambda: client({provider: "A" * 43}).chat.completions.create(messages=user, model=model))
out["alias"] = error(lambda: sync.chat.completions.create(messages=user, model="fast"))
out["resolved"] = client(aliases=True).chat.completions.create(messages=user, model="fast", max_tokens=2).model
out["conflict"] = error(lambda: sync.chat.completions.create(messages=user, model=model, extra_body={"stand_in": {"status": 409}}))
out["trusted"] = error(lambda: sync.chat.completions.create(messages=user, model=model, metadata={"otela_trusted_providers": "nobody"}))
out["bad pin"] = error(lambda: client({provider: pin + "\n"}))
out["files"] = error(lambda: sync.files.create(file=b"{}", purpose="batch"))
out["plain"] = error(lambda: client(transport=Plain()).chat.completions.create(messages=user, model=model))
out["unsealed"] = error(lambda: client(transport=Unsealed()).chat.completions.create(messages=user, model=model))
out["endless"] = error(lambda: client(transport=Endless()).chat.completions.create(messages=user, model=model))
out["cut"] = error(
    lambda: list(sync.chat.completions.create(messages=user, model=model, stream=True, extra_body={"stand_in": {"fault": "reset", "afterTokens": 3, "tokensPerSecond": 20}}))
)


async def later():
    http = httpx.AsyncClient(transport=AsyncSealedTransport(pins=pins))
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, http_client=http) as client:
        stream = await client.chat.completions.create(messages=user, model=model, max_tokens=5, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])


async def refused(transport):
    http = httpx.AsyncClient(transport=AsyncSealedTransport(pins=pins, transport=transport))
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, http_client=http) as client:
        try:
            await client.chat.completions.create(messages=user, model=model)
        except openai.APIConnectionError as caught:
            return getattr(caught.__cause__, "code", None)


connects = []
with httpx.Client(transport=SealedTransport(pins=pins)) as raw:
    for _ in range(3):
        answer = raw.post(
            f"{base}/chat/completions",
            headers={"authorization": f"Bearer {key}"},
            json={"model": model, "messages": user},
            extensions={"trace": lambda name, _: connects.append(name) if name == "connection.connect_tcp.started" else None},
        )
out["connections"] = len(connects)
out["sunset"] = answer.headers.get("sunset")
out["async"] = asyncio.run(later())
out["async plain"] = asyncio.run(refused(AsyncPlain()))
out["async unsealed"] = asyncio.run(refused(AsyncUnsealed()))
out["closed"] = Garbage.closed
print(json.dumps(out))
