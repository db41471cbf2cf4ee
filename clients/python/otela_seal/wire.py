"""The format of sealed requests and answers: docs/sealed-wire.md has it byte by byte. No I/O."""

import base64
import hashlib
import json
import math
import os
import struct
from dataclasses import dataclass
from typing import Iterator

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyInterface

from .errors import SealClientError

SEALED_TYPE = "application/otela-sealed"
LIFE_S = 10 * 60
RESUMABLE_LIFE_S = 20 * 60
DELEGATE_LIFE_MAX_S = 90 * 86_400
_SUITE_ID = bytes.fromhex("002000010002")
_CHUNK_MAX = 16_384
_TAG = 16
_CONTENT_MAX = _CHUNK_MAX - _TAG - 2
_HEAD_MAX = 8 * 1024
_SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES256_GCM)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _field(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def varint(value: int) -> bytes:
    """RFC 9000, section 16."""
    if value < 0x40:
        return bytes([value])
    if value < 0x4000:
        return struct.pack(">H", value | 0x4000)
    return struct.pack(">I", value | 0x8000_0000)


def read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number and where it ends; None where more bytes are needed."""
    if at >= len(data):
        return None
    end = at + (1 << (data[at] >> 6))
    if end > len(data):
        return None
    first = data[at] & 0x3F
    return int.from_bytes(bytes([first]) + data[at + 1 : end], "big"), end


def padme(size: int) -> int:
    size = max(256, size)
    exponent = int(math.log2(size))
    step = 1 << max(0, exponent - int(math.log2(exponent)) - 1)
    return -(-size // step) * step


def _nonce(base: bytes, count: int) -> bytes:
    return base[:8] + struct.pack(">I", struct.unpack(">I", base[8:])[0] ^ count)


def _hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


@dataclass(frozen=True)
class Node:
    """One that is believed. `mode`: pinned, or registry (the gateway's word alone)."""

    session: str
    provider: str
    mode: str
    kid: str
    key: bytes
    until: float


@dataclass(frozen=True)
class Secret:
    node: Node
    salt: bytes
    secret: bytes


@dataclass(frozen=True)
class Sealed:
    headers: dict[str, str]
    body: bytes
    secrets: dict[bytes, Secret]
    resume: bool


def believe(one: object, pins: dict[str, str] | None, now: float) -> Node | None:
    """None for a node that is not believed, or does not look like one."""
    try:
        if not isinstance(one, dict) or one["v"] != 1:
            return None
        session, provider, kid, until = str(one["session"]), str(one["provider"]), str(one["kid"]), float(one["until"])
        key = unb64(one["key"])
        if len(key) != 32 or until <= now or kid != b64(hashlib.sha256(b"otela seal 1" + key).digest()[:8]):
            return None
        node = Node(session, provider, "registry" if pins is None else "pinned", kid, key, until)
        if pins is None:
            return node
        return node if _vouched(node, one["vouch"], unb64(pins[provider]), now) else None
    except (KeyError, TypeError, ValueError, InvalidSignature):
        return None


def _vouched(node: Node, text: str, pin: bytes, now: float) -> bool:
    vouch = unb64(text)
    if len(vouch) != 200:
        return False
    delegate, not_after, signature = vouch[32:64], struct.unpack(">I", vouch[64:68])[0], vouch[68:132]
    until, key_signature = struct.unpack(">I", vouch[132:136])[0], vouch[136:]
    if now >= until or now >= not_after or not_after - now > DELEGATE_LIFE_MAX_S:
        return False
    own = _field(node.provider.split("@")[0].encode())
    delegated = b"otela seal 1 delegate\0" + own + delegate + struct.pack(">I", not_after)
    vouched = b"otela seal 1 vouch\0" + own + _field(node.session.encode()) + node.key + struct.pack(">I", until)
    Ed25519PublicKey.from_public_bytes(pin).verify(signature, delegated)
    Ed25519PublicKey.from_public_bytes(delegate).verify(key_signature, vouched)
    return True


def request_info(path: str, model: str, stream: bool, resume: bool, nonce: bytes, at: int, until: int) -> bytes:
    fields = [_SUITE_ID, path.encode(), model.encode(), bytes([stream]), bytes([resume]), nonce]
    fields += [struct.pack(">I", at), struct.pack(">I", until)]
    return b"otela seal 1 request\0" + b"".join(map(_field, fields))


def seal_body(cek: bytes, nonce: bytes, headers: list[tuple[str, str]], body: bytes) -> bytes:
    head = json.dumps(headers, separators=(",", ":"), ensure_ascii=False).encode()
    content = varint(len(head)) + head + body
    total = padme(len(content))
    cipher = AESGCM(_hkdf(cek, nonce, b"otela seal 1 body key", 32))
    base = _hkdf(cek, nonce, b"otela seal 1 body nonce", 12)
    frames: list[bytes] = []
    for number, at in enumerate(range(0, total, _CONTENT_MAX)):
        size = min(_CONTENT_MAX, total - at)
        piece = content[at : at + size]
        last = at + size == total
        plain = (struct.pack(">H", 0x4000 | len(piece)) + piece).ljust(size + 2, b"\0")
        sealed = cipher.encrypt(_nonce(base, number), plain, b"final" if last else b"")
        frames.append((b"\0" if last else varint(len(sealed))) + sealed)
    return b"".join(frames)


def seal(
    path: str,
    model: str,
    stream: bool,
    headers: list[tuple[str, str]],
    body: bytes,
    nodes: list[Node],
    now: float,
    resume: bool = False,
) -> Sealed:
    nonce, cek, at = os.urandom(16), os.urandom(32), int(now)
    resume = resume and stream
    until = at + (RESUMABLE_LIFE_S if resume else LIFE_S)
    sealed = seal_body(cek, nonce, headers, body)
    info = request_info(path, model, stream, resume, nonce, at, until)
    inside = cek + hashlib.sha256(sealed).digest()
    envelopes, secrets = [], {}
    for node in nodes:
        enc, context = _SUITE.create_sender_context(_public(node.key), info=info)
        kid = unb64(node.kid)
        envelopes.append(b64(kid + enc + context.seal(inside)))
        if resume:
            secrets[kid] = Secret(node, kid, _hkdf(cek, nonce, b"otela seal 1 resumable answer", 32))
        else:
            secrets[kid] = Secret(node, enc, context.export(b"otela seal 1 response", 32))
    clear = {
        "content-type": SEALED_TYPE,
        "x-otela-model": model,
        "x-otela-seal": f"v=1; n={b64(nonce)}; at={at}; until={until}",
        "x-otela-seal-to": ", ".join(envelopes),
    }
    if stream:
        clear["x-otela-stream"] = "1"
    if resume:
        clear["x-otela-resume"] = "1"
    return Sealed(clear, sealed, secrets, resume)


def _public(key: bytes) -> KEMKeyInterface:
    return KEMKey.from_jwk({"kty": "OKP", "crv": "X25519", "x": b64(key)})


def _unpadded(plain: bytes) -> bytes:
    end = 2 + ((plain[0] & 0x3F) << 8 | plain[1])
    if plain[0] >> 6 != 1 or end > len(plain) or plain[end:].strip(b"\0"):
        raise ValueError("a chunk without its length")
    return plain[2:end]


class AnswerOpener:
    """Give `push` the bytes as they come; it yields ("head", {status, headers, node}), ("data", bytes), ("note", text), ("end", None)."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed
        self._rest = b""
        self._cipher: AESGCM | None = None
        self._node: Node | None = None
        self._base = b""
        self._segment = ""
        self._count = 0
        self._before: dict[str, object] | None = None
        self.ended = False

    def push(self, piece: bytes) -> Iterator[tuple[str, object]]:
        self._rest += piece
        try:
            while (found := self._frame()) is not None:
                yield from self._open(*found)
        except (InvalidTag, ValueError, KeyError, TypeError, IndexError) as error:
            raise SealClientError("not_opened", "The answer is not what a node sealed.") from error

    def close(self) -> None:
        """The connection ended."""
        if not self.ended:
            raise SealClientError("cut", "The answer ended before its last chunk.")

    def _frame(self) -> tuple[int, bytes] | None:
        length = read_varint(self._rest, 1)
        if length is None:
            return None
        size, at = length
        if size > _CHUNK_MAX:
            raise ValueError("a frame that is too long")
        if at + size > len(self._rest):
            return None
        kind, payload, self._rest = self._rest[0], self._rest[at : at + size], self._rest[at + size :]
        return kind, payload

    def _open(self, kind: int, payload: bytes) -> Iterator[tuple[str, object]]:
        if kind == 0:
            if payload:
                yield "note", payload.decode()
        elif kind == 1:
            self._begin(payload)
        elif kind == 2:
            yield from self._content(_unpadded(self._decrypt(payload, b"")))
        elif kind == 3:
            if self._count == 0 or _unpadded(self._decrypt(payload, b"final")):
                raise ValueError("a last chunk with content")
            self.ended = True
            yield "end", None
        else:
            raise ValueError("no such frame")

    def _begin(self, payload: bytes) -> None:
        if self._cipher is not None:
            if not self._sealed.resume or self.ended or self._count == 0:
                raise ValueError("a part that was not asked for")
            self._before = {"segment": self._segment, "chunks": self._count}
        if len(payload) != 40:
            raise ValueError("a part without its nonce")
        found = self._sealed.secrets[payload[:8]]
        salt = found.salt + payload[8:]
        self._node = found.node
        self._segment, self._count = b64(payload[8:]), 0
        self._cipher = AESGCM(_hkdf(found.secret, salt, b"key", 32))
        self._base = _hkdf(found.secret, salt, b"nonce", 12)

    def _decrypt(self, sealed: bytes, aad: bytes) -> bytes:
        if self._cipher is None or self.ended:
            raise ValueError("a chunk outside its part")
        plain = self._cipher.decrypt(_nonce(self._base, self._count), sealed, aad)
        self._count += 1
        return plain

    def _content(self, content: bytes) -> Iterator[tuple[str, object]]:
        if self._count == 1:
            length = read_varint(content, 0)
            if length is None or length[0] > _HEAD_MAX or length[1] + length[0] > len(content):
                raise ValueError("no head")
            size, at = length
            head = json.loads(content[at : at + size])
            content = content[at + size :]
            # A part goes on exactly where the one before ended, or begins the answer.
            if head.get("continues") != self._before:
                raise ValueError("a part that goes on elsewhere")
            if self._before is None:
                headers = [tuple(header) for header in head["headers"]]
                yield "head", {"status": int(head["status"]), "headers": headers, "node": self._node}
        if content:
            yield "data", content
