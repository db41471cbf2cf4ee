/** GPUs as a record tells of them, of what a tool printed. */
import { gpuClass } from '../../shared/hardware/classes.ts';
import { type Gpu, gpuSchema } from '../../shared/lattice/node.ts';

/** `vramMib`: as told, which need not be an amount. */
interface Told {
  name: string;
  vramMib: number;
}

/** After devices were chosen, never before: one that is left out still counts in CUDA_VISIBLE_DEVICES. */
export function described(devices: readonly Told[]): { gpus: Gpu[]; note?: string } {
  const all = devices.map(({ name, vramMib }) => ({ class: gpuClass(name), name, vram_mib: vramMib }));
  // A replica reads no record with such a GPU in it: it would not see the node at all.
  const gpus = all.filter((gpu) => gpuSchema.safeParse(gpu).success);
  const [odd] = all.filter((gpu) => !gpus.includes(gpu));
  if (odd === undefined) return { gpus };
  const left = all.length - gpus.length;
  return { gpus, note: `${left} of ${all.length} left out: the memory of ${odd.name} cannot be ${odd.vram_mib} MiB` };
}
