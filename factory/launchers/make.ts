import type { ClusterConfig } from '../config/schema.ts';
import { FactoryError } from '../errors.ts';
import { commandRunner, type RunCommand } from './command.ts';
import type { Launcher } from './launcher.ts';
import { slurmLauncher } from './slurm.ts';

export function makeLauncher(cluster: ClusterConfig, run: RunCommand = commandRunner()): Launcher {
  switch (cluster.launcher) {
    case 'slurm':
      return slurmLauncher(cluster, run);
    default:
      throw new FactoryError('config', `no launcher ${cluster.launcher}`);
  }
}
