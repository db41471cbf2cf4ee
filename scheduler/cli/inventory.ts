import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { command } from '../live/command.ts';
import { slurmInventory } from '../live/sinfo.ts';
import { type ClusterInventory, readInventory } from '../planner/input.ts';

/** Reads the inventory from a file, or from `sinfo`: the GPUs that Slurm has free now. */
export function inventoryFrom(
  where: string,
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
  run: typeof command = command,
): Promise<ClusterInventory> {
  return where === 'sinfo' ? slurmInventory(catalogue, log, run) : Promise.resolve(readInventory(where, catalogue));
}
