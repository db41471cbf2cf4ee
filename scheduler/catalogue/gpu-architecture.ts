import type { Precision } from './precision.ts';

/** Generations of GPUs that engines distinguish. */
export const ARCHITECTURES = [
  'volta',
  'turing',
  'ampere',
  'ada',
  'hopper',
  'blackwell',
  'blackwell-rtx',
  'cdna2',
  'cdna3',
  'cdna4',
] as const;
export type Architecture = (typeof ARCHITECTURES)[number];

/**
 * Precisions that vLLM loads on each architecture: its table of quantization methods and hardware
 * (docs/features/quantization, 2025 and 2026). It includes Marlin's weight-only kernels, which widen 8-bit and 4-bit
 * floats from Ampere on. Keys and values in fp8 need the same architectures as weights in fp8.
 */
const RUNS: Readonly<Record<Architecture, readonly Precision[]>> = {
  volta: ['bf16', 'int4'],
  turing: ['bf16', 'int8', 'int4'],
  ampere: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'],
  ada: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'],
  hopper: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'],
  blackwell: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'],
  'blackwell-rtx': ['bf16', 'fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'],
  cdna2: ['bf16', 'int4'],
  cdna3: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4'],
  cdna4: ['bf16', 'fp8', 'int8', 'int4', 'mxfp4'],
};

/**
 * Returns why weights, or keys and values, of this precision do not run on the GPU. Undefined if they do, or if the
 * GPU's architecture is unknown.
 */
export function precisionProblem(
  gpu: { id: string; architecture: Architecture | undefined },
  weights: Precision,
  kv: Precision,
): string | undefined {
  if (gpu.architecture === undefined) return undefined;
  const runs = RUNS[gpu.architecture];
  if (!runs.includes(weights))
    return `${gpu.id} (${gpu.architecture}) does not support ${weights} weights; it supports ${runs.join(', ')}`;
  if (!runs.includes(kv)) return `${gpu.id} (${gpu.architecture}) does not support a KV cache in ${kv}`;
  return undefined;
}
