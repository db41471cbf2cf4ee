import { type Calibration, type Efficiency, productEfficiency } from '../catalogue/calibration.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import type { Precision } from '../catalogue/precision.ts';
import type { Work } from './operators.ts';

/**
 * FLOP/s that products with weights of this precision can reach. A GPU without units for the precision first widens
 * weights to 16 bits.
 */
export function peakFlops(gpu: GpuType, weights: Precision): number {
  switch (weights) {
    case 'bf16':
    case 'int4':
      return gpu.bf16;
    case 'fp8':
      return gpu.fp8 ?? gpu.bf16;
    case 'int8':
      return gpu.int8 ?? gpu.bf16;
    case 'mxfp4':
    case 'nvfp4':
      return gpu.fp4 ?? gpu.bf16;
  }
}

/**
 * Seconds of a matrix product. A roofline (Williams 2009) is the maximum of two times, for arithmetic and for memory.
 * Measured products that need about the same time for both are slower than the maximum. The p-norm of both times
 * describes them: p = 1 adds them, p = infinity is the exact roofline.
 */
export function gemmSeconds(
  work: Work,
  gpu: GpuType,
  efficiency: Efficiency,
  weights: Precision,
  routed = false,
): number {
  const of = productEfficiency(efficiency, weights, routed);
  const compute = work.flops / (peakFlops(gpu, weights) * of.compute * efficiency.sustained);
  const memory = work.bytes / (gpu.bandwidth * of.memory);
  return pNorm(compute, memory, of.p) + of.launch_us * 1e-6;
}

export function pNorm(a: number, b: number, p: number): number {
  const high = Math.max(a, b);
  if (high === 0) return 0;
  return high * (1 + (Math.min(a, b) / high) ** p) ** (1 / p);
}

/** Latency in s between this many GPUs of a node, and bytes/s in one direction. */
function wireOf(gpus: number, gpu: GpuType, links: Calibration['links']): { latency: number; oneWay: number } {
  const joined = gpus <= gpu.linkDomain;
  const link = joined ? (links[gpu.link] ?? links.nvlink) : links.pcie;
  // In a mesh of n GPUs, each GPU has wires to n-1 others. In a group of t GPUs, each uses only its wires to the other
  // t-1 GPUs of the group.
  const wires = gpu.linkMesh > 1 && gpus <= gpu.linkMesh ? (gpus - 1) / (gpu.linkMesh - 1) : 1;
  const { latency_us, bandwidth } = link.gpus?.[String(gpus)] ?? link;
  const oneWay = ((joined ? gpu.linkBandwidth * wires : gpu.pcieBandwidth) / 2) * bandwidth;
  return { latency: latency_us * 1e-6, oneWay };
}

/**
 * Seconds of an all-reduce (ring): each GPU sends and receives 2(t-1)/t of the payload. If the link does not join all
 * GPUs of the group (NVLink bridges join pairs), PCIe is used.
 */
export function allReduceSeconds(bytes: number, tp: number, gpu: GpuType, links: Calibration['links']): number {
  if (tp === 1) return 0;
  const { latency, oneWay } = wireOf(tp, gpu, links);
  return latency + (((2 * (tp - 1)) / tp) * bytes) / oneWay;
}

/** Seconds for each of `gpus` GPUs to send `bytes`, spread evenly over the others. */
export function allToAllSeconds(bytes: number, gpus: number, gpu: GpuType, links: Calibration['links']): number {
  if (gpus === 1) return 0;
  const { latency, oneWay } = wireOf(gpus, gpu, links);
  return latency + (((gpus - 1) / gpus) * bytes) / oneWay;
}

/** Seconds for one GPU to send `bytes` to a neighbor among `gpus` GPUs. */
export function sendSeconds(bytes: number, gpus: number, gpu: GpuType, links: Calibration['links']): number {
  const { latency, oneWay } = wireOf(Math.max(2, gpus), gpu, links);
  return latency + bytes / oneWay;
}
