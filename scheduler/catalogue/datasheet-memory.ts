import { GPU_CLASSES } from '../../shared/hardware/gpu-classes.ts';
import type { HardwareCatalogue } from './catalogue.ts';
import type { GpuType } from './gpu.ts';

/**
 * Returns the catalogue with the memory that data sheets print, in GB of 10^9 bytes: an H100 has 80e9 bytes, although
 * its driver reports 85.5e9. Experiments from papers use it, because the papers state this memory, and their results
 * depend on the batches that fit.
 */
export function withDatasheetMemory(catalogue: HardwareCatalogue): HardwareCatalogue {
  return {
    ...catalogue,
    gpus: catalogue.gpus.map((gpu) => ({ ...gpu, memoryBytes: printedGb(gpu) * 1e9 })),
  };
}

/**
 * The memory size on the data sheet: of the sizes that are sold in the GPU's class, the nearest to the driver's figure.
 * If the class is unknown, the driver's figure.
 */
function printedGb(gpu: GpuType): number {
  const gib = gpu.memoryBytes / 2 ** 30;
  const sizes = GPU_CLASSES.find(({ name }) => name === gpu.class)?.memoryGib ?? [gpu.memoryBytes / 1e9];
  return sizes.reduce((best, size) => (Math.abs(size - gib) < Math.abs(best - gib) ? size : best));
}
