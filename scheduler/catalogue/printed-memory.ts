import { GPU_CLASSES } from '../../shared/hardware/gpu-classes.ts';
import type { HardwareCatalogue } from './catalogue.ts';
import type { GpuType } from './gpu.ts';

/**
 * The catalogue with the memory that data sheets print, read as 10^9 bytes per GB: an H100 has 80e9 bytes, although its
 * driver reports 85.5e9. Experiments of papers use it, because the papers state this memory, and the batches that fit
 * decide their results.
 */
export function withPrintedMemory(catalogue: HardwareCatalogue): HardwareCatalogue {
  return {
    ...catalogue,
    gpus: catalogue.gpus.map((gpu) => ({ ...gpu, memoryBytes: printedGb(gpu) * 1e9 })),
  };
}

/** The nearest size of its class that is sold; its actual memory if the class is unknown. */
function printedGb(gpu: GpuType): number {
  const gib = gpu.memoryBytes / 2 ** 30;
  const sizes = GPU_CLASSES.find(({ name }) => name === gpu.class)?.memoryGib ?? [gpu.memoryBytes / 1e9];
  return sizes.reduce((best, size) => (Math.abs(size - gib) < Math.abs(best - gib) ? size : best));
}
