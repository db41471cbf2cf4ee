"""The vectors of test/fixtures/seal.json against clients/python. Argument: the file."""
import hashlib
import json
import sys

from otela_seal.wire import AnswerOpener, Node, Sealed, Secret, padme, request_info, seal_body

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
print("ok")
