/** Converts a tool's output into the GPUs of a registry record. */
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import { type Gpu, gpuSchema } from '../../shared/lattice/node-record.ts';

export interface GpuRecords {
  gpus: Gpu[];
  /** Why there are no GPUs, or fewer than the tool printed. */
  note?: string;
  /** True if the tool is not installed, which needs no warning. */
  absent?: boolean;
}

/** A GPU as a tool printed it. The number in `vramMib` may be invalid. */
interface PrintedGpu {
  name: string;
  vramMib: number;
}

/** Pass the devices that this job may use. @param hidden note about devices of the machine that the job may not use */
export function gpuRecords(devices: readonly PrintedGpu[], hidden: string | undefined): GpuRecords {
  const all = devices.map(({ name, vramMib }) => ({ class: gpuClass(name), name, vram_mib: vramMib }));
  // Registry replicas refuse a record with an invalid GPU, and would not show the node.
  const gpus = all.filter((gpu) => gpuSchema.safeParse(gpu).success);
  const [odd] = all.filter((gpu) => !gpus.includes(gpu));
  const left = all.length - gpus.length;
  const impossible =
    odd && `ignored ${left} of ${all.length}: ${odd.name} reports an impossible memory size of ${odd.vram_mib} MiB`;
  const notes = [hidden, impossible].filter((note) => note !== undefined);
  return notes.length === 0 ? { gpus } : { gpus, note: notes.join('; ') };
}
