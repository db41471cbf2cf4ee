#!/usr/bin/env python3
"""Measures the operators of scheduler/roofline on the GPU of this machine and fits its parameters.

    npm run calibrate:kernels -- --gpu A100-80-SXM [--out calibration.local.json]

Needs PyTorch with CUDA or ROCm and nothing else. Prints a fragment for `otela-plan --calibration`: copy it into `gpus` of a copy of
scheduler/data/calibration.json. One GPU is measured; all-reduce is measured too when started with torchrun.
"""
import argparse
import json
import math
import os
import sys
from pathlib import Path

WARM_UP, REPEATS = 5, 20
TOKENS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
# (inner, outer) of Llama-2-7B, -13B, 34B and 70B: qkv, output, gate and up, down.
SHAPES = [(4096, 12288), (4096, 4096), (4096, 22016), (11008, 4096), (5120, 15360), (5120, 27648), (13824, 5120),
          (8192, 10240), (8192, 8192), (8192, 44032), (22016, 8192), (8192, 57344), (28672, 8192)]


def peak(gpu_id):
    """TFLOP/s and GB/s of the data sheet, from the catalogue."""
    rows = json.loads((Path(__file__).parent.parent.parent / "shared/hardware/gpus.json").read_text())["gpus"]
    for row in rows:
        if row["id"] == gpu_id:
            return row["bf16_tflops"] * 1e12, row["bandwidth_gbs"] * 1e9, row["link_gbs"] * 1e9
    sys.exit(f"no GPU is called {gpu_id}; there are {', '.join(row['id'] for row in rows)}")


def median_seconds(torch, run):
    """Median of single runs by the device's own clock; the L2 cache is emptied before each by writing 256 MB."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    for _ in range(WARM_UP):
        run()
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def measure_gemms(torch, dtype):
    points = []
    for inner, outer in SHAPES:
        weight = torch.randn(inner, outer, dtype=dtype, device="cuda")
        for tokens in TOKENS:
            x = torch.randn(tokens, inner, dtype=dtype, device="cuda")
            seconds = median_seconds(torch, lambda: torch.mm(x, weight))
            flops = 2 * tokens * inner * outer
            points.append((flops, 2 * (inner * outer + tokens * (inner + outer)), seconds))
    return points


def measure_sustained(torch, dtype, seconds=20):
    """Share of the cool rate that a large product keeps after a while of continuous load."""
    a = torch.randn(8192, 8192, dtype=dtype, device="cuda")
    cool = median_seconds(torch, lambda: torch.mm(a, a))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(int(seconds / cool)):
        torch.mm(a, a)
    torch.cuda.synchronize()
    runs = 200
    begin.record()
    for _ in range(runs):
        torch.mm(a, a)
    end.record()
    end.synchronize()
    return min(1.0, cool / (begin.elapsed_time(end) * 1e-3 / runs))


def measure_decode_attention(torch, dtype, bandwidth):
    """Share of bandwidth, and launch time, of reading keys and values: least squares over batches and contexts."""
    xs, ys = [], []
    for batch in (1, 4, 16, 64):
        for context in (512, 1024, 2048, 4096):
            q = torch.randn(batch, 32, 1, 128, dtype=dtype, device="cuda")
            k = torch.randn(batch, 32, context, 128, dtype=dtype, device="cuda")
            v = torch.randn_like(k)
            ys.append(median_seconds(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)))
            xs.append(2 * batch * 32 * context * 128 * 2)
    slope, start = line(xs, ys)
    return 1 / (slope * bandwidth), max(0.0, start)


def measure_prefill_attention(torch, dtype, flops):
    shares = []
    for tokens in (1024, 2048, 4096, 8192):
        q = torch.randn(1, 32, tokens, 128, dtype=dtype, device="cuda")
        seconds = median_seconds(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True))
        shares.append(4 * 32 * 128 * tokens * (tokens + 1) / 2 / seconds / flops)
    return sorted(shares)[len(shares) // 2]


def line(xs, ys):
    n, mx, my = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)
    return slope, my - slope * mx


def model(point, peak_flops, bandwidth, compute, memory, p, launch):
    a, b = point[0] / (peak_flops * compute), point[1] / (bandwidth * memory)
    return (a**p + b**p) ** (1 / p) + launch


def mape(points, *parameters):
    return sum(abs(model(point, *parameters) / point[2] - 1) for point in points) / len(points)


def fit(points, peak_flops, bandwidth):
    """Coordinate search by factors: four parameters, a smooth bowl."""
    x, step = [0.74, 0.85, 1.45, 5e-6], 1.2
    best = mape(points, peak_flops, bandwidth, *x)
    while step > 1.001:
        better = False
        for i in range(4):
            for factor in (step, 1 / step):
                y = list(x)
                y[i] = max(1.0, y[i] * factor) if i == 2 else y[i] * factor
                error = mape(points, peak_flops, bandwidth, *y)
                if error < best:
                    x, best, better = y, error, True
        if not better:
            step = math.sqrt(step)
    return x


def measure_all_reduce(torch, link):
    """Latency and share of one direction of the link that a ring reaches; under torchrun only."""
    import torch.distributed as dist

    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    xs, ys = [], []
    for megabytes in (0.125, 0.5, 2, 8, 32, 128):
        data = torch.zeros(int(megabytes * 2**20) // 2, dtype=torch.bfloat16, device="cuda")
        ys.append(median_seconds(torch, lambda: dist.all_reduce(data)))
        xs.append(2 * (size - 1) / size * data.numel() * 2)
    dist.destroy_process_group()
    slope, start = line(xs, ys)
    return rank, {"latency_us": round(max(0.0, start) * 1e6, 1), "bandwidth": round(1 / (slope * link / 2), 3), "fitted": f"calibrate, {size} GPUs"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", required=True, help="its id in otela-plan catalogue")
    parser.add_argument("--out", help="where to write the fragment; the terminal without it")
    arguments = parser.parse_args()
    peak_flops, bandwidth, link = peak(arguments.gpu)
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is needed: https://pytorch.org/get-started")
    if not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use")
    if "LOCAL_RANK" in os.environ:
        rank, found = measure_all_reduce(torch, link)
        if rank == 0:
            print(json.dumps({"links": {"measured": found}}, indent=2))
        return
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    points = measure_gemms(torch, dtype)
    fitted, held = points[::2], points[1::2]
    compute, memory, p, launch = fit(fitted, peak_flops, bandwidth)
    attention_memory, attention_launch = measure_decode_attention(torch, dtype, bandwidth)
    fragment = {
        "compute": round(compute, 3), "sustained": round(measure_sustained(torch, dtype), 3), "memory": round(memory, 3), "p": round(p, 3),
        "launch_us": round(launch * 1e6, 2), "attention_compute": round(measure_prefill_attention(torch, dtype, peak_flops), 3),
        "attention_memory": round(attention_memory, 3), "attention_launch_us": round(attention_launch * 1e6, 1),
        "fitted": f"calibrate on {torch.cuda.get_device_name(0)}, torch {torch.__version__}",
    }
    error = mape(held, peak_flops, bandwidth, compute, memory, p, launch)
    print(f"{len(held)} products not fitted: mean error {error * 100:.1f} %", file=sys.stderr)
    text = json.dumps({"gpus": {arguments.gpu: fragment}}, indent=2)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
