/** This job's hardware, in the form of a registry record. */
import { availableParallelism } from 'node:os';
import type { GpuGroup, NodePayload } from '../../shared/lattice/node-payload.ts';
import { GPUS_MAX, type NodeRecord } from '../../shared/lattice/node-record.ts';
import { rocmGpus } from './amd-gpus.ts';
import { nvidiaGpus } from './nvidia-gpus.ts';
import type { RunTool } from './run-tool.ts';
import { usableMemoryMib } from './usable-memory.ts';

export type Hardware = NodeRecord['hardware'];

type Env = Readonly<Record<string, string | undefined>>;

/** Never rejects. If a tool is missing or fails, the list of GPUs is empty, and the log says why. */
export async function inventory(env: Env, run: RunTool, log: (line: string) => void): Promise<Hardware> {
  const [nvidia, amd] = await Promise.all([nvidiaGpus(run, env), rocmGpus(run, env)]);
  for (const { note, absent } of [nvidia, amd]) if (note && !absent) log(`GPUs: ${note}`);
  const gpus = [...nvidia.gpus, ...amd.gpus].slice(0, GPUS_MAX);
  if (nvidia.absent && amd.absent) log('GPUs: none found, because neither nvidia-smi nor rocm-smi is installed');
  return { gpus, cpus: usableCpus(env), memory_mib: usableMemoryMib(env) };
}

/**
 * The number of CPUs that this job may use. Slurm's variable is read because some sites set neither the affinity nor a
 * control group.
 */
function usableCpus(env: Env): number {
  const own = availableParallelism();
  const slurm = env.SLURM_CPUS_ON_NODE;
  return slurm !== undefined && /^[1-9]\d{0,4}$/.test(slurm) ? Math.min(own, Number(slurm)) : own;
}

/** Maximum number of different device types in one record. */
const KINDS_MAX = 64;

/**
 * Hardware of an engine that spans several machines: the sum of equal devices. Each machine is assumed to be like this
 * one, which is how Slurm allocates unless a heterogeneous job is requested. At most GPUS_MAX, because replicas refuse
 * a record with more.
 */
export function hardwareOf({ gpus, cpus, memory_mib }: Hardware, nodes: number): NodePayload['hardware'] {
  const groups = new Map<string, GpuGroup>();
  let left = GPUS_MAX;
  for (const { class: kind, name, vram_mib } of gpus) {
    const more = Math.min(nodes, left);
    left -= more;
    if (more === 0) break;
    const key = JSON.stringify([kind, name, vram_mib]);
    groups.set(key, { class: kind, name, vram_mib, count: (groups.get(key)?.count ?? 0) + more });
  }
  return { gpus: [...groups.values()].slice(0, KINDS_MAX), cpus: cpus * nodes, memory_mib: memory_mib * nodes };
}
