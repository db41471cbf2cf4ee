"""Evidence of nodes' machines, for clients with a verifier; docs/sealed.md lists what it must check. No I/O."""

import base64
import hashlib
import json
import math
import os
import re
import time
from dataclasses import dataclass
from typing import Awaitable, Protocol, TypeVar

from .answer import AnswerOpener
from .errors import SealClientError
from .requests import ClearRequest
from .wire import Node, b64, evidence_message

_PATH = "/v1/otela/evidence"
_NONCE_BYTES = 32
_KIND = re.compile(r"[a-z0-9-]{1,16}")
_KINDS_MAX = 4
# Reports of a processor and of eight GPUs with their certificates need half of it; the rest is for base64, JSON and padding.
_ANSWER_MAX_BYTES = 512 * 1024
# Cached verdicts; at this number all are dropped and judged again.
_JUDGED_MAX = 256
# How long a refusal holds, because a report takes a machine seconds.
_REFUSED_S = 300
# How long a node is skipped if it gave no evidence or the verifier failed.
_FAILED_S = 10

# Headers that identify a caller.
_WHO = ("authorization", "x-api-key")

_Verdict = TypeVar("_Verdict", bool, Exception)

UNPROVEN = "The verifier rejected the evidence of all nodes that serve the model. Nothing was sent."


@dataclass(frozen=True)
class Evidence:
    """`kinds`: in the node's spelling: tdx, snp, nvidia. `data`: output of the provider's helper program. `report_data`: 64 bytes that the
    report must contain; they are derived from the node's key and a fresh nonce."""

    node: Node
    kinds: tuple[str, ...]
    data: bytes
    report_data: bytes


class EvidenceVerifier(Protocol):
    """Judges a machine. If `verify` returns False or raises, nothing is sealed to the node."""

    def verify(self, evidence: Evidence) -> bool: ...


class AsyncEvidenceVerifier(Protocol):
    """Like `EvidenceVerifier`; `verify` may be a coroutine."""

    def verify(self, evidence: Evidence) -> bool | Awaitable[bool]: ...


class Question:
    """A request for one node's evidence, sealed only to this node."""

    def __init__(self, clear: ClearRequest, node: Node) -> None:
        self._node = node
        self._nonce = os.urandom(_NONCE_BYTES)
        body = json.dumps({"model": clear.model, "nonce": b64(self._nonce)}).encode()
        self.request, sealed = clear.question(_PATH, body, node)
        self._opener = AnswerOpener(sealed)
        self._data = b""
        self._came = 0

    def push(self, piece: bytes) -> bool:
        """True at the end of the response."""
        self._came += len(piece)
        if self._came > _ANSWER_MAX_BYTES:
            raise SealClientError("not_opened", "The evidence is too long.")
        for kind, value in self._opener.push(piece):
            if kind == "note":
                raise SealClientError("gateway", f"The gateway says (no node signed this, so it may be false): {str(value)[:500]}")
            if kind == "head" and isinstance(value, dict) and value["status"] != 200:
                raise SealClientError("not_opened", f"The node returned no evidence: HTTP {value['status']}.")
            if isinstance(value, bytes):
                self._data += value
        return self._opener.ended

    def evidence(self) -> Evidence:
        self._opener.close()
        try:
            answer = json.loads(self._data)
            kinds = [kind for kind in answer["kinds"] if isinstance(kind, str) and _KIND.fullmatch(kind)]
            data = base64.b64decode(answer["evidence"], validate=True)
        except (ValueError, KeyError, TypeError) as error:
            raise SealClientError("not_opened", "The node returned no evidence.") from error
        report_data = hashlib.sha512(evidence_message(self._node.key, self._nonce)).digest()
        return Evidence(self._node, tuple(kinds[:_KINDS_MAX]), data, report_data)


class Judged:
    """Verdicts by key. Failures by key and caller, because a wrong API key of one caller is not the node's fault."""

    def __init__(self) -> None:
        self._until: dict[tuple[object, ...], tuple[float, bool | Exception]] = {}

    def known(self, clear: ClearRequest, node: Node) -> bool | Exception | None:
        """The verifier's last verdict. An exception if the check failed recently. None if unknown, so that the node must be asked."""
        for name in ((node.kid,), self._mine(clear, node)):
            until, verdict = self._until.get(name, (-math.inf, None))
            if time.monotonic() < until:
                return verdict
        return None

    def learn(self, node: Node, good: bool) -> bool:
        return self._keep((node.kid,), math.inf if good else _REFUSED_S, good)

    def fail(self, clear: ClearRequest, node: Node, why: Exception) -> Exception:
        return self._keep(self._mine(clear, node), _FAILED_S, why.with_traceback(None))

    def _keep(self, name: tuple[object, ...], seconds: float, verdict: _Verdict) -> _Verdict:
        if len(self._until) >= _JUDGED_MAX:
            self._until.clear()
        self._until[name] = (time.monotonic() + seconds, verdict)
        return verdict

    @staticmethod
    def _mine(clear: ClearRequest, node: Node) -> tuple[object, ...]:
        return (node.kid, clear.base, clear.model, *(clear.request.headers.get(one) for one in _WHO))
