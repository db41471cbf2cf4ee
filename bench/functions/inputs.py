"""`python bench/functions/inputs.py [INPUTS] [BUFFER]`: the client's memory and time for one map() of millions of inputs.

The gateway is a stand-in in this process that answers each line with its input, so that the client alone is measured. Half of
the inputs are then asked for again: a second client finds their results in earlier batches.
"""

import json
import os
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import opentela  # noqa: E402

MIB = 2**20


@opentela.function
def same(text):
    return text


class StandIn:
    """Keeps the results of ended batches on disk."""

    def __init__(self):
        self.inputs, self.made, self.folder = {}, [], f"/tmp/opentela-inputs-{os.getpid()}"
        os.makedirs(self.folder)

    def upload(self, name, content, purpose, expires_s=None):
        id = f"file-{len(self.made)}-{purpose}"
        self.inputs[id] = content
        return id

    def create_batch(self, endpoint, file, metadata, window):
        id = f"batch_{len(self.made)}"
        self.made.append({"id": id, "status": "completed", "metadata": metadata, "output_file_id": id, "created_at": 0})
        lines = [json.loads(line) for line in self.inputs.pop(file).splitlines()]
        with open(os.path.join(self.folder, id), "w") as results:
            for line in lines:
                body = {"output": line["body"]["input"]["args"][0]}
                results.write(json.dumps({"custom_id": line["custom_id"], "response": {"body": body}, "error": None}) + "\n")
        return self.made[-1]

    def batches(self, most):
        return reversed(self.made)

    def lines(self, file, may_lack=False):
        with open(os.path.join(self.folder, file)) as results:
            for line in results:
                yield json.loads(line)

    def get(self, path):
        if path.startswith("/files"):
            return {"data": []}
        batch = self.made[int(path.split("/")[2].partition("?")[0].removeprefix("batch_"))]
        return {"data": [], "has_more": False, "after": "1", "batch": batch}


def run(gateway, inputs, buffer):
    client = opentela.Client("http://stand-in", "key", progress=False)
    client.gateway = client._sender.gateway = gateway
    began = time.monotonic()
    results = client.map(same, (f"input number {number}" for number in range(inputs)), buffersize=buffer)
    for number, result in enumerate(results):
        assert result == f"input number {number}"
    client.shutdown()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    print(f"{results.counts['completed']} inputs in {len(gateway.made)} batches: {time.monotonic() - began:.0f} s, at most {peak:.0f} MiB", flush=True)


def main():
    inputs, buffer = (int(value) for value in (sys.argv[1:] + ["1000000", "100000"][len(sys.argv) - 1 :])[:2])
    gateway = StandIn()
    run(gateway, inputs, buffer)
    run(gateway, inputs // 2, buffer)


if __name__ == "__main__":
    main()
