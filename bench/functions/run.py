"""`npm run bench:functions`: what it costs to load a model in each call, once on a node, or once in a process; and Parsl.

`python3 bench/functions/run.py --node FILE` needs only a Python with torch, Node.js and dist/, as on a machine without network.
"""

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures import as_completed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "clients", "python")]

import model  # noqa: E402
import opentela  # noqa: E402
from cluster import Cluster, SlurmCluster, processor_s  # noqa: E402

# Shares of the results after which a node is killed. The first half of the nodes is preempted, in turns.
PREEMPTED_AT = (0.2, 0.4, 0.6, 0.8)
MIB = 2**20


def client_of(cluster):
    return opentela.Client(cluster.url, cluster.key, reuse=False, progress=False)


def function(run, options, **context):
    load = model.load if run == "pervasive" else model.settings
    context["device"] = options.device
    return opentela.function(load=load, context=context, batch_size=options.batch, timeout="10m")(getattr(model, run))


def noted(log):
    """Loads, bytes and begun inputs of all processes, also of killed ones."""
    found = {"load": 0, "read": 0, "begin": 0}
    with open(log) as file:
        for line in file:
            kind, value = json.loads(line)
            found[kind] += 1 if kind == "load" else value
    return found


def opportunistic(cluster, run, options, source):
    """One run in which half of the nodes are killed and come back with an empty disk."""
    log = os.path.join(cluster.folder, f"{run}-{time.monotonic_ns()}.log")
    open(log, "w").close()
    for number in range(options.nodes):
        cluster.start_node(number)
    preempted = list(range(options.nodes // 2))
    with client_of(cluster) as client:
        # Nodes have joined when an empty call of each has ended.
        list(client.map(opentela.function(model.empty), range(options.nodes)))
        began = time.monotonic()
        results = client.map(function(run, options, source=source, log=log), range(options.inputs))
        waits, kills = set(results.futures), 0
        for done, _ in enumerate(as_completed(waits), 1):
            cluster.bring_back()
            if preempted and kills < len(PREEMPTED_AT) and done >= PREEMPTED_AT[kills] * options.inputs:
                cluster.preempt_node(preempted[kills % len(preempted)])
                kills += 1
        seconds = time.monotonic() - began
        labels = [future.result() for future in results.futures]
        batches = [one for one in client.gateway.batches(100) if (one["metadata"] or {}).get("opentela_run") == results.id]
    cluster.kill_nodes()
    found = noted(log)
    return {
        "run": run,
        "seconds": round(seconds, 1),
        "loads": found["load"],
        "bytesRead": found["read"],
        "inferencesLost": found["begin"] - options.inputs,
        "gpuSeconds": round(sum(one["x_otela"]["gpu_seconds"] for one in batches), 1),
        "labels": labels,
    }


def ours(cluster, options, source):
    """Empty calls per second, seconds to the first result, and seconds of a run, at one node."""
    log = os.path.join(cluster.folder, f"ours-{time.monotonic_ns()}.log")
    cluster.start_node("peer", options.nodes)
    with client_of(cluster) as client:
        empty = opentela.function(model.empty)
        client.submit(empty, 0).result()
        began, spent = time.monotonic(), processor_s()
        assert list(client.map(empty, range(options.calls))) == list(range(options.calls))
        calls, spent = options.calls / (time.monotonic() - began), processor_s() - spent
        # Parsl does not copy files to a node, so both read the weights at their source.
        infer = function("pervasive", options, source=source, log=log, copies=False)
        began = time.monotonic()
        client.submit(infer, 0).result()
        first = time.monotonic() - began
    with client_of(cluster) as client:
        began = time.monotonic()
        labels = list(client.map(infer, range(options.inputs)))
        seconds = time.monotonic() - began
    cluster.kill_nodes()
    return {"system": "OpenTela", "callsPerS": calls, "callsPerCpuS": options.calls / spent, "firstS": first, "runS": seconds, "labels": labels}


def parsls(cluster, options, source):
    from other import Parsl

    log = os.path.join(cluster.folder, f"parsl-{time.monotonic_ns()}.log")
    parsl = Parsl(cluster.folder, options.nodes)
    began = time.monotonic()
    assert [one.result() for one in [parsl.empty(value) for value in range(options.calls)]] == list(range(options.calls))
    calls = options.calls / (time.monotonic() - began)
    began = time.monotonic()
    parsl.pervasive(source, options.device, log, [0]).result()
    first = time.monotonic() - began
    began = time.monotonic()
    parts = [list(range(at, min(at + options.batch, options.inputs))) for at in range(0, options.inputs, options.batch)]
    labels = [label for one in [parsl.pervasive(source, options.device, log, part) for part in parts] for label in one.result()]
    seconds = time.monotonic() - began
    parsl.close()
    return {"system": "Parsl", "callsPerS": calls, "firstS": first, "runS": seconds, "labels": labels}


def medians(rows):
    return {name: statistics.median(row[name] for row in rows) for name in ("callsPerS", "firstS", "runS")}


def compare(cluster, options, source, keep):
    """By turns, so that other work on the machine meets both. Returns the rows that miss what is required."""
    turns = {"OpenTela": [], "Parsl": []}
    for number in range(options.rounds):
        for run in (ours, parsls) if number % 2 == 0 else (parsls, ours):
            row = run(cluster, options, source)
            keep(row)
            turns[row["system"]].append(row)
            each = f"{row['callsPerCpuS']:.0f}" if "callsPerCpuS" in row else "not known"
            print(f"| {row['system']} | {row['callsPerS']:.0f} | {each} | {row['firstS']:.2f} | {row['runS']:.1f} |", flush=True)
    own, other = (medians(rows) for rows in turns.values())
    required = {
        "at least 2,000 empty calls/s": own["callsPerS"] >= 2_000,
        "the first result within 1.2 times Parsl's time": own["firstS"] <= 1.2 * other["firstS"],
        "a run faster than Parsl's": own["runS"] < other["runS"],
    }
    for what, holds in required.items():
        print(f"{'holds' if holds else 'MISSED'}: {what}")
    return all(required.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["runs", "parsl"], help="runs, parsl")
    parser.add_argument("--node", required=True, help="path of Node.js")
    parser.add_argument("--device", choices=list(model.SIZES), default="cpu")
    parser.add_argument("--nodes", type=int, default=4, help="nodes of `runs`, processes of `parsl`")
    parser.add_argument("--inputs", type=int, default=480)
    parser.add_argument("--batch", type=int, default=20, help="inputs of one call")
    parser.add_argument("--calls", type=int, default=10_000, help="empty calls")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each system")
    parser.add_argument("--slurm", action="store_true", help="nodes of `runs` are jobs of a Slurm, at most 4")
    parser.add_argument("--out", help="file for the rows as JSON lines")
    options = parser.parse_args()
    cluster = (SlurmCluster if options.slurm else Cluster)(options.node)
    source = os.path.join(cluster.folder, "weights.pt")
    print(f"weights: {model.make(source, options.device) / MIB:.0f} MiB, {options.device}", flush=True)
    answers = []

    def keep(row):
        answers.append(row.pop("labels"))
        if options.out:
            with open(options.out, "a") as file:
                file.write(json.dumps(row) + "\n")

    good = True
    if "runs" in options.parts:
        print("| run | seconds | loads | MiB read | inferences lost | GPU-seconds |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        for run in ("naive", "partial", "pervasive"):
            row = opportunistic(cluster, run, options, source)
            keep(row)
            cells = [run, row["seconds"], row["loads"], row["bytesRead"] // MIB, row["inferencesLost"], row["gpuSeconds"]]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if "parsl" in options.parts:
        print("| system | empty calls/s | per processor second | first result, s | run, s |\n| --- | --- | --- | --- | --- |", flush=True)
        good = compare(cluster, options, source, keep)
    if any(labels != answers[0] for labels in answers):
        raise SystemExit("the runs have different labels")
    print(f"all {len(answers)} runs have the same {options.inputs} labels")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
