"""Streams through sealing transports at two nodes; one of them breaks off each response. Arguments as in sealed-python.py. Prints one JSON object."""
import asyncio
import json
import sys
import time

import openai
from opentela.seal import AsyncSealedTransport, SealClientError, SealedTransport
from opentela.seal._httpx import httpx
from opentela.seal.wire import read_varint

base, key, model, provider, pin = sys.argv[1:]
pins = {provider: pin}
user = [{"role": "user", "content": "Say something."}]
WITHIN_S = 40


class Forging(httpx.BaseTransport):
    """A gateway that changes the parts of a continued stream."""

    def __init__(self, change):
        self._inner = httpx.HTTPTransport()
        self._change = change
        self.changed = False

    def handle_request(self, request):
        response = self._inner.handle_request(request)
        if request.method == "GET":
            return response
        data, parts, at = b"".join(response.iter_raw()), [], 0
        while at < len(data):
            size, begin = read_varint(data, at + 1)
            if data[at] == 1:
                parts.append([])
            if data[at] != 0:
                parts[-1].append(data[at : begin + size])
            at = begin + size
        self.changed = len(parts) == 2
        out = b"".join(self._change(*parts)) if self.changed else data
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(out))


def stream(transport):
    with openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=httpx.Client(transport=transport)) as client:
        try:
            chunks = list(client.chat.completions.create(messages=user, model=model, stream=True))
        except SealClientError as caught:
            return caught.code
        except openai.APIError as caught:
            cause = caught.__cause__
            return cause.code if isinstance(cause, SealClientError) else repr(caught)
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def until(wanted):
    """
    Calls `wanted` until it returns a result, because the gateway chooses the node of each stream, and does not use a node for a while
    if its streams break off.
    """
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        found = wanted()
        if found is not None:
            return [found]
    return []


def forged(change):
    transport = Forging(change)
    said = stream(SealedTransport(pins=pins, resume=True, transport=transport))
    return said if transport.changed else None


def broken():
    said = stream(SealedTransport(pins=pins))
    return said if said == "gateway" else None


async def later():
    http = httpx.AsyncClient(transport=AsyncSealedTransport(pins=pins, resume=True))
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, http_client=http) as client:
        chunks = await client.chat.completions.create(messages=user, model=model, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in chunks])


# These need a stream that breaks off, so they run before the gateway stops using the node.
dropped = until(lambda: forged(lambda first, second: first))
forging = until(lambda: forged(lambda first, second: [*first[:-1], *second]))
breaking = until(broken)
pairs = [(stream(SealedTransport(pins=pins, resume=True)), asyncio.run(later())) for _ in range(6)]
print(
    json.dumps(
        {
            "sync": sorted({sync for sync, _ in pairs}),
            "async": sorted({other for _, other in pairs}),
            "broken": breaking,
            "dropped": dropped,
            "forged": forging,
        }
    )
)
