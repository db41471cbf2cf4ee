"""Sealed responses in the format of docs/design/sealed-wire.md. No I/O."""

import json
from typing import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .errors import SealClientError
from .wire import CHUNK_MAX, Node, Sealed, b64, chunk_nonce, hkdf, read_varint, varint

_HEAD_MAX = 8 * 1024
# Bytes of frames after which another node may still continue: no gateway keeps more of a response.
CONTINUED_MAX = 4 * 1024 * 1024


def _unpadded(plain: bytes) -> bytes:
    end = 2 + ((plain[0] & 0x3F) << 8 | plain[1])
    if plain[0] >> 6 != 1 or end > len(plain) or plain[end:].strip(b"\0"):
        raise ValueError("the padding of a chunk is invalid")
    return plain[2:end]


class AnswerOpener:
    """`push` takes the bytes as they arrive and yields ("head", {status, headers, node}), ("data", bytes), ("note", text), ("end", None)."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed
        self._rest = b""
        self._cipher: AESGCM | None = None
        self._node: Node | None = None
        self._base = b""
        self._segment = ""
        self._count = 0
        self._before: dict[str, object] | None = None
        # Nodes that sealed a part. Each answers a request once, so there are at most as many parts as nodes.
        self._answered: set[bytes] = set()
        # Bytes of the frames so far, as gateways count them.
        self._bytes = 0
        self.ended = False

    def push(self, piece: bytes) -> Iterator[tuple[str, object]]:
        self._rest += piece
        try:
            while (found := self._frame()) is not None:
                yield from self._open(*found)
        except (InvalidTag, ValueError, KeyError, TypeError, IndexError) as error:
            raise SealClientError("not_opened", "The response was not sealed by a node.") from error

    def close(self) -> None:
        """Call when the connection ended. Raises SealClientError if the response is incomplete."""
        if not self.ended:
            raise SealClientError("cut", "The response ended before its last chunk.")

    def _frame(self) -> tuple[int, bytes] | None:
        length = read_varint(self._rest, 1)
        if length is None:
            return None
        size, at = length
        if size > CHUNK_MAX:
            raise ValueError("a frame is too long")
        if at + size > len(self._rest):
            return None
        kind, payload, self._rest = self._rest[0], self._rest[at : at + size], self._rest[at + size :]
        return kind, payload

    def _open(self, kind: int, payload: bytes) -> Iterator[tuple[str, object]]:
        if kind == 1:
            self._begin(payload)
        if kind != 0:
            self._bytes += 1 + len(varint(len(payload))) + len(payload)
        if kind == 0:
            if payload:
                yield "note", payload.decode()
        elif kind == 2:
            yield from self._content(_unpadded(self._decrypt(payload, b"")))
        elif kind == 3:
            if self._count == 0 or _unpadded(self._decrypt(payload, b"final")):
                raise ValueError("the last chunk comes first, or has content")
            self.ended = True
            yield "end", None
        elif kind != 1:
            raise ValueError("a frame has an unknown type")

    def _begin(self, payload: bytes) -> None:
        if self._cipher is not None:
            if not self._sealed.resume or self.ended or self._count == 0:
                raise ValueError("a part that the request did not allow")
            if self._bytes > CONTINUED_MAX:
                raise ValueError("the response is too long to be continued by another node")
            self._before = {"segment": self._segment, "chunks": self._count}
        if len(payload) != 40 or payload[:8] in self._answered:
            raise ValueError("a part has no nonce, or its node has sealed an earlier part")
        self._answered.add(payload[:8])
        found = self._sealed.secrets[payload[:8]]
        salt = found.salt + payload[8:]
        self._node = found.node
        self._segment, self._count = b64(payload[8:]), 0
        self._cipher = AESGCM(hkdf(found.secret, salt, b"key", 32))
        self._base = hkdf(found.secret, salt, b"nonce", 12)

    def _decrypt(self, sealed: bytes, aad: bytes) -> bytes:
        if self._cipher is None or self.ended:
            raise ValueError("a chunk outside of a part")
        plain = self._cipher.decrypt(chunk_nonce(self._base, self._count), sealed, aad)
        self._count += 1
        return plain

    def _content(self, content: bytes) -> Iterator[tuple[str, object]]:
        if self._count == 1:
            length = read_varint(content, 0)
            if length is None or length[0] > _HEAD_MAX or length[1] + length[0] > len(content):
                raise ValueError("the head is missing or too long")
            size, at = length
            head = json.loads(content[at : at + size])
            content = content[at + size :]
            # A part continues exactly at the end of the previous one, or begins the response.
            if head.get("continues") != self._before:
                raise ValueError("a part that does not continue at this position")
            if self._before is None:
                headers = [tuple(header) for header in head["headers"]]
                yield "head", {"status": int(head["status"]), "headers": headers, "node": self._node}
        if content:
            yield "data", content
