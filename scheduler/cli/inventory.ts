import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { runSlurmCommand } from '../live/run-slurm-command.ts';
import { slurmInventory } from '../live/sinfo.ts';
import { type ClusterInventory, readInventory } from '../planner/read-input.ts';

/** Reads the inventory from a file, or from `sinfo`, which lists the GPUs that are free in Slurm now. */
export function inventoryFrom(
  where: string,
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
  run: typeof runSlurmCommand = runSlurmCommand,
): Promise<ClusterInventory> {
  return where === 'sinfo' ? slurmInventory(catalogue, log, run) : Promise.resolve(readInventory(where, catalogue));
}
