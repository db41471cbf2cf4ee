"""Verifiers of evidence under the Python openai SDK. Arguments as in sealed-python.py. Prints one JSON object."""
import asyncio
import json
import sys

import openai
from opentela.seal import AsyncSealedTransport, Evidence, SealClientError, SealedTransport
from opentela.seal._httpx import httpx

base, key, model, provider, pin = sys.argv[1:]
pins = {provider: pin}
user = [{"role": "user", "content": "Say something."}]


class Verifier:
    """Accepts the mock helper's evidence if it covers the expected 64 bytes."""

    def __init__(self):
        self.seen: list[Evidence] = []

    def verify(self, evidence):
        self.seen.append(evidence)
        return evidence.data == b"stand-in report over " + evidence.report_data.hex().encode()


class AsyncVerifier(Verifier):
    async def verify(self, evidence):
        return super().verify(evidence)


class Refusing:
    def __init__(self, verdict):
        self._verdict = verdict
        self.asked = 0

    def verify(self, evidence):
        self.asked += 1
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict


class Repeating(httpx.BaseTransport):
    """A gateway that returns the evidence of one response for another, and counts chats."""

    def __init__(self):
        self._inner = httpx.HTTPTransport()
        self._kept = None
        self.swaps = False
        self.chats = 0

    def handle_request(self, request):
        self.chats += request.url.path.endswith("/completions")
        response = self._inner.handle_request(request)
        if not self.swaps or not request.url.path.endswith("/v1/otela/evidence"):
            return response
        self._kept = self._kept or b"".join(response.iter_raw())
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(self._kept))


def chat(transport):
    with openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=httpx.Client(transport=transport)) as client:
        try:
            return client.chat.completions.create(messages=user, model=model, max_tokens=2).choices[0].finish_reason
        except openai.APIError as caught:
            cause = caught.__cause__
            return [cause.code, str(cause.__cause__)] if isinstance(cause, SealClientError) else repr(caught)


async def achat(transport):
    http = httpx.AsyncClient(transport=transport)
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, http_client=http) as client:
        for _ in range(2):
            answer = await client.chat.completions.create(messages=user, model=model, max_tokens=2)
        return answer.choices[0].finish_reason


out = {}
verifier = Verifier()
transport = SealedTransport(pins=pins, verifier=verifier)
out["sync"] = [chat(transport), chat(transport)]
waiting, plain = AsyncVerifier(), Verifier()
out["async"] = [asyncio.run(achat(AsyncSealedTransport(pins=pins, verifier=one))) for one in (waiting, plain)]
out["asked"] = [len(one.seen) for one in (verifier, waiting, plain)]
seen = [*verifier.seen, *waiting.seen, *plain.seen]
out["kinds"] = sorted({kind for one in seen for kind in one.kinds})
out["nonces"] = len({one.report_data for one in seen})
gateway = Repeating()
refusing, raising = Refusing(False), Refusing(RuntimeError("a certificate has run out"))
for name, one in (("refused", refusing), ("raised", raising)):
    transport = SealedTransport(pins=pins, verifier=one, transport=gateway)
    out[name] = [*chat(transport), chat(transport)[1], one.asked]
out["truthy"] = chat(SealedTransport(pins=pins, verifier=Refusing("yes"), transport=gateway))[0]
gateway.swaps = True
chat(SealedTransport(pins=pins, verifier=Refusing(False), transport=gateway))
out["swapped"] = chat(SealedTransport(pins=pins, verifier=Verifier(), transport=gateway))[0]
out["sent"] = gateway.chats
print(json.dumps(out))
