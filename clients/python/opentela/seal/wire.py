"""The format of sealed requests; docs/design/sealed-wire.md specifies it byte by byte. No I/O."""

import base64
import hashlib
import json
import math
import os
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyInterface

SEALED_TYPE = "application/otela-sealed"
LIFE_S = 10 * 60
RESUMABLE_LIFE_S = 20 * 60
DELEGATE_LIFE_MAX_S = 90 * 86_400
_SUITE_ID = bytes.fromhex("002000010002")
CHUNK_MAX = 16_384
_TAG = 16
_CONTENT_MAX = CHUNK_MAX - _TAG - 2
_SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES256_GCM)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _field(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def varint(value: int) -> bytes:
    """A variable-length integer as in RFC 9000, section 16."""
    if value < 0x40:
        return bytes([value])
    if value < 0x4000:
        return struct.pack(">H", value | 0x4000)
    return struct.pack(">I", value | 0x8000_0000)


def read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number and the offset of its end. None if more bytes are needed."""
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


def chunk_nonce(base: bytes, count: int) -> bytes:
    return base[:8] + struct.pack(">I", struct.unpack(">I", base[8:])[0] ^ count)


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


@dataclass(frozen=True)
class Node:
    """A trusted node. `mode`: pinned, or registry (only the gateway's claim)."""

    session: str
    provider: str
    mode: str
    kid: str
    key: bytes
    until: float
    evidence: bool = False
    """True if the node claims to have evidence of its machine."""


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
    """None if the node is not trusted, or its entry is malformed."""
    try:
        if not isinstance(one, dict) or one["v"] != 1:
            return None
        session, provider, kid, until = str(one["session"]), str(one["provider"]), str(one["kid"]), float(one["until"])
        key = unb64(one["key"])
        if len(key) != 32 or until <= now or kid != b64(hashlib.sha256(b"otela seal 1" + key).digest()[:8]):
            return None
        mode, proves = "registry" if pins is None else "pinned", bool(one.get("evidence"))
        node = Node(session, provider, mode, kid, key, until, proves)
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


def evidence_message(key: bytes, nonce: bytes) -> bytes:
    """A machine's report must contain the SHA-512 of this message."""
    return b"otela seal 1 evidence\0" + _field(key) + _field(nonce)


def seal_body(cek: bytes, nonce: bytes, headers: list[tuple[str, str]], body: bytes) -> bytes:
    head = json.dumps(headers, separators=(",", ":"), ensure_ascii=False).encode()
    content = varint(len(head)) + head + body
    total = padme(len(content))
    cipher = AESGCM(hkdf(cek, nonce, b"otela seal 1 body key", 32))
    base = hkdf(cek, nonce, b"otela seal 1 body nonce", 12)
    frames: list[bytes] = []
    for number, at in enumerate(range(0, total, _CONTENT_MAX)):
        size = min(_CONTENT_MAX, total - at)
        piece = content[at : at + size]
        last = at + size == total
        plain = (struct.pack(">H", 0x4000 | len(piece)) + piece).ljust(size + 2, b"\0")
        sealed = cipher.encrypt(chunk_nonce(base, number), plain, b"final" if last else b"")
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
            secrets[kid] = Secret(node, kid, hkdf(cek, nonce, b"otela seal 1 resumable answer", 32))
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
