import { freeGpus } from '../../shared/slurm/gpu-gres.ts';
import { takesJobs } from '../../shared/slurm/node-state.ts';
import { findGpu, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import { SchedulerError } from '../errors.ts';
import type { ClusterInventory } from '../planner/read-input.ts';
import type { Pool } from '../solver/planning-problem.ts';

/** Arguments of sinfo: it prints one line per node, in fields that cannot contain a bar. */
const ARGUMENTS = [
  '--noheader',
  '-N',
  '-O',
  'NodeHost:100,|:1,StateCompact:40,|:1,Gres:400,|:1,GresUsed:400,|:1,Partition:100',
];
/** Maximum number of kinds of nodes in a plan. */
const POOLS_MAX = 128;

/** Runs a Slurm command and returns its output; rejects with the end of its error output if it fails. */
type RunCommand = (file: string, args: readonly string[]) => Promise<string>;

/**
 * Reads the GPUs that no job uses, by partition, kind and number on a node. Jobs that start after the query are not
 * seen.
 */
export async function slurmInventory(
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
  run: RunCommand,
): Promise<ClusterInventory> {
  const out = await run('sinfo', ARGUMENTS);
  const pools = new Map<string, Pool>();
  const unknown = new Set<string>();
  const seen = new Set<string>();
  for (const line of out.split('\n')) {
    const [host = '', state = '', gres = '', used = '', partition = ''] = line.split('|').map((cell) => cell.trim());
    // A node in several partitions counts only in the first partition that sinfo prints.
    if (!takesJobs(state) || seen.has(host)) continue;
    for (const [type, free] of freeGpus(gres, used)) {
      if (free <= 0) continue;
      const gpu = type === undefined ? undefined : gpuOf(catalogue, type);
      if (type === undefined || gpu === undefined) {
        unknown.add(type ?? 'gpu, without a type,');
        continue;
      }
      seen.add(host);
      const name = partition.replace(/\*$/, '');
      const id = `${name} ${type} x${free}`;
      const values = { partition: name, gres: type };
      const pool = pools.get(id) ?? { id, gpu, nodes: 0, gpusPerNode: free, values };
      pools.set(id, { ...pool, nodes: pool.nodes + 1 });
    }
  }
  for (const type of unknown)
    log(
      `GPUs that Slurm calls ${type.slice(0, 64)} are skipped: the catalogue does not know them (add them with --gpus)`,
    );
  if (pools.size === 0)
    throw new SchedulerError('infeasible', 'sinfo shows no node with a free GPU that the catalogue knows');
  return { pools: [...pools.values()].sort((a, b) => b.nodes - a.nodes).slice(0, POOLS_MAX), running: [] };
}

function gpuOf(catalogue: HardwareCatalogue, type: string): GpuType | undefined {
  try {
    return findGpu(catalogue, type);
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_gpu') return undefined;
    throw error;
  }
}
