/** GPUs as a record tells of them, of what a tool printed. */
import { gpuClass } from '../../shared/hardware/classes.ts';
import { type Gpu, gpuSchema } from '../../shared/lattice/node.ts';

export interface GpuRecords {
  gpus: Gpu[];
  /** Why there are none, or fewer than the tool lists. */
  note?: string;
  /** The tool is not installed: not worth a warning. */
  absent?: boolean;
}

/** `vramMib`: as told, which need not be an amount. */
interface Told {
  name: string;
  vramMib: number;
}

/**
 * After devices were chosen, never before: one that is left out still counts in CUDA_VISIBLE_DEVICES. `hidden`: what is to be said of those
 * that were not chosen.
 */
export function gpuRecords(devices: readonly Told[], hidden: string | undefined): GpuRecords {
  const all = devices.map(({ name, vramMib }) => ({ class: gpuClass(name), name, vram_mib: vramMib }));
  // A replica reads no record with such a GPU in it: it would not see the node at all.
  const gpus = all.filter((gpu) => gpuSchema.safeParse(gpu).success);
  const [odd] = all.filter((gpu) => !gpus.includes(gpu));
  const left = all.length - gpus.length;
  const impossible =
    odd && `${left} of ${all.length} left out: the memory of ${odd.name} cannot be ${odd.vram_mib} MiB`;
  const notes = [hidden, impossible].filter((note) => note !== undefined);
  return notes.length === 0 ? { gpus } : { gpus, note: notes.join('; ') };
}
