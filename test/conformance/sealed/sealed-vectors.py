"""The vectors of test/fixtures/seal.json against clients/python. Argument: the file."""
import hashlib
import json
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from opentela.seal.answer import CONTINUED_MAX, AnswerOpener
from opentela.seal.errors import SealClientError
from opentela.seal.wire import CHUNK_MAX, Node, Sealed, Secret, b64, chunk_nonce, evidence_message, hkdf, padme, request_info, seal_body, varint

with open(sys.argv[1], encoding="utf-8") as file:
    vectors = json.load(file)
info = vectors["info"]
made = request_info(info["path"], info["model"], info["stream"], False, bytes.fromhex(info["nonce"]), info["at"], info["until"])
assert made.hex() == info["bytes"], "info"
assert [[size, padme(size)] for size, _ in vectors["padme"]] == vectors["padme"], "padme"
for one in vectors["bodies"]:
    sealed = seal_body(bytes.fromhex(one["cek"]), bytes.fromhex(one["nonce"]), one["headers"], one["body"].encode())
    assert hashlib.sha256(sealed).hexdigest() == one["sealed"], "body"
answer = vectors["answer"]
kid, enc, secret = (bytes.fromhex(answer[name]) for name in ("kid", "enc", "secret"))
node = Node("s", "p", "pinned", "", b"", 0)
opener = AnswerOpener(Sealed({}, b"", {kid: Secret(node, enc, secret)}, False))
frames = bytes.fromhex(answer["frames"])
events = [event for at in range(0, len(frames), 7) for event in opener.push(frames[at : at + 7])]
opener.close()
assert b"".join(value for kind, value in events if kind == "data").decode() == answer["body"], "answer"
assert (events[0][1]["status"], events[-1]) == (answer["status"], ("end", None)), "head and end"
evidence = vectors["evidence"]
message = evidence_message(bytes.fromhex(evidence["key"]), bytes.fromhex(evidence["nonce"]))
assert hashlib.sha512(message).hexdigest() == evidence["report_data"], "evidence"


# Parts of a continued stream, as nodes seal them: how many, and after how much data, a client accepts.
def part(name, nonce, contents, continues=None, whole=False):
    kid, key, base = name * 8, *(hkdf(b"s" * 32, name * 8 + nonce * 32, label, size) for label, size in ((b"key", 32), (b"nonce", 12)))
    more = {} if continues is None else {"continues": {"segment": b64(continues[0] * 32), "chunks": continues[1]}}
    head = json.dumps({"status": 200, "headers": [], **more}).encode()
    contents = [varint(len(head)) + head, *contents]
    frames = [b"\1" + varint(40) + kid + nonce * 32]
    for number, content in enumerate([*contents, b""] if whole else contents):
        kind, aad = (b"\3", b"final") if number == len(contents) else (b"\2", b"")
        plain = (0x4000 | len(content)).to_bytes(2, "big") + content
        sealed = AESGCM(key).encrypt(chunk_nonce(base, number), plain, aad)
        frames.append(kind + varint(len(sealed)) + sealed)
    return b"".join(frames)


def text(*parts):
    secrets = {name * 8: Secret(node, name * 8, b"s" * 32) for name in (b"a", b"b")}
    opener = AnswerOpener(Sealed({}, b"", secrets, True))
    try:
        return b"".join(value for kind, value in opener.push(b"".join(parts)) if kind == "data")
    except SealClientError as error:
        return error.code


first, second = part(b"a", b"1", [b"one "]), part(b"b", b"2", [b"two "], (b"1", 2))
assert text(first, second) == b"one two ", "a part that goes on"
assert text(first, second, part(b"a", b"3", [b"three"], (b"2", 2), True)) == "not_opened", "a node's second part"
large = b"x" * (CHUNK_MAX - 18)
for chunks, taken in ((255, True), (256, False)):
    long = part(b"a", b"1", [large] * chunks)
    assert (len(long) <= CONTINUED_MAX) == taken, "how long"
    said = text(long, part(b"b", b"2", [b"end"], (b"1", chunks + 1), True))
    assert said == (large * chunks + b"end" if taken else "not_opened"), "behind so much"
print('"ok"')
