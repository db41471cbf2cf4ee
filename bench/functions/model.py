"""A transformer with random weights, and the functions of the bench: the same model, loaded at three places.

naive: each call starts a Python, copies the weights from the shared file system, and loads the model.
partial: the weights stay on the node's disk; each call starts a Python and loads the model.
pervasive: load() loads the model once in a process, where it stays.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

HEADS = 8
# Inputs that the model computes together.
ROWS = 25
SIZES = {
    "cpu": {"layers": 2, "width": 512, "words": 400_000, "type": "float32", "tokens": 16},
    "cuda": {"layers": 16, "width": 3072, "words": 128_000, "type": "bfloat16", "tokens": 128},
}


def note(log, *words):
    """Adds a line to the log of all processes. A write of one short line is not mixed with others."""
    with open(log, "ab", buffering=0) as file:
        file.write((json.dumps(words) + "\n").encode())


def make(path, device):
    """Writes random weights."""
    import torch

    size = SIZES[device]
    width, kind = size["width"], getattr(torch, size["type"])
    torch.manual_seed(0)

    def random(*shape):
        on = "cuda" if device == "cuda" else "cpu"
        return (torch.randn(*shape, device=on, dtype=torch.float32) / math.sqrt(width)).to(kind).cpu()

    weights = {"words": random(size["words"], width), "head": random(width, 2)}
    for layer in range(size["layers"]):
        weights[f"{layer}.attention"] = random(width, 3 * width)
        weights[f"{layer}.out"] = random(width, width)
        weights[f"{layer}.up"] = random(width, 4 * width)
        weights[f"{layer}.down"] = random(4 * width, width)
    torch.save(weights, path)
    return os.path.getsize(path)


def read(path, device, log):
    """The model in the memory of the device."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    weights = torch.load(path, map_location=device)
    if device == "cuda":
        torch.cuda.synchronize()
    note(log, "load", os.getpid())
    return {"weights": weights, "device": device}


def infer(model, seeds):
    """The label of each input. An input is a number, from which its tokens are made."""
    import torch

    words, length = (SIZES[model["device"]][name] for name in ("words", "tokens"))
    labels = []
    with torch.no_grad():
        for at in range(0, len(seeds), ROWS):
            rows = [[(seed * 7919 + place * 104729) % words for place in range(length)] for seed in seeds[at : at + ROWS]]
            labels += _forward(model, torch.tensor(rows, device=model["device"])).argmax(-1).tolist()
    return labels


def _forward(model, tokens):
    import torch

    weights = model["weights"]
    state = weights["words"][tokens]
    rows, length, width = state.shape
    for layer in range(SIZES[model["device"]]["layers"]):
        normal = torch.nn.functional.layer_norm(state, (width,))
        parts = (normal @ weights[f"{layer}.attention"]).view(rows, length, 3, HEADS, width // HEADS)
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        share = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(width // HEADS), -1)
        state = state + (share @ value).transpose(1, 2).reshape(rows, length, width) @ weights[f"{layer}.out"]
        normal = torch.nn.functional.layer_norm(state, (width,))
        state = state + torch.nn.functional.gelu(normal @ weights[f"{layer}.up"]) @ weights[f"{layer}.down"]
    return state.mean(1) @ weights["head"]


def _copied(source, folder, log):
    """Copies the weights. Copies of other processes of the node are not visible before they are complete."""
    target = os.path.join(folder, "weights.pt")
    unfinished = f"{target}.{os.getpid()}"
    shutil.copyfile(source, unfinished)
    os.rename(unfinished, target)
    note(log, "read", os.path.getsize(target))
    return target


def _on_node(source, log):
    """The weights on the disk of this node. The bench sets HF_HOME to a directory of the node."""
    folder = os.environ["HF_HOME"]
    target = os.path.join(folder, "weights.pt")
    return target if os.path.exists(target) else _copied(source, folder, log)


def _in_new_process(settings, weights, seeds):
    asked = json.dumps({**settings, "weights": weights, "seeds": seeds})
    made = subprocess.run([sys.executable, os.path.abspath(__file__)], input=asked, capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stderr[-500:])
    return json.loads(made.stdout)


def settings(**context):
    return context


def naive(settings, seeds):
    note(settings["log"], "begin", len(seeds))
    with tempfile.TemporaryDirectory() as folder:
        return _in_new_process(settings, _copied(settings["source"], folder, settings["log"]), seeds)


def partial(settings, seeds):
    note(settings["log"], "begin", len(seeds))
    return _in_new_process(settings, _on_node(settings["source"], settings["log"]), seeds)


def load(source, device, log, copies=True):
    return {**read(_on_node(source, log) if copies else source, device, log), "log": log}


def pervasive(model, seeds):
    note(model["log"], "begin", len(seeds))
    return infer(model, seeds)


def empty(value):
    return value


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    print(json.dumps(infer(read(asked["weights"], asked["device"], asked["log"]), asked["seeds"])))
