import type { ClusterConfig, FactoryConfig } from '../config/schema.ts';
import { adminApi } from './admin-api-client.ts';
import { batchLauncher } from './batch-system.ts';
import { commandRunner, type RunCommand } from './command-runner.ts';
import { flux } from './flux.ts';
import { gridEngine } from './grid-engine.ts';
import { htcondor } from './htcondor.ts';
import { agentsLauncher } from './idle-agents.ts';
import { kubernetesLauncher } from './kubernetes.ts';
import type { Launcher } from './launcher.ts';
import { lsf } from './lsf.ts';
import { pbs } from './pbs.ts';
import { slurmLauncher } from './slurm.ts';

/**
 * Creates the launcher of a cluster. `site`: the gateway's address, for clusters that are controlled through it.
 * @throws FactoryError `config`
 */
export function makeLauncher(
  cluster: ClusterConfig,
  site: Pick<FactoryConfig, 'gateway' | 'ca_file'>,
  run: RunCommand = commandRunner(),
): Launcher {
  switch (cluster.launcher) {
    case 'slurm':
      return slurmLauncher(cluster, run);
    case 'kubernetes':
      return kubernetesLauncher(cluster);
    case 'grid-engine':
      return batchLauncher(cluster, gridEngine(cluster), run);
    case 'htcondor':
      return batchLauncher(cluster, htcondor(cluster), run);
    case 'pbs':
      return batchLauncher(cluster, pbs(cluster), run);
    case 'lsf':
      return batchLauncher(cluster, lsf(cluster), run);
    case 'flux':
      return batchLauncher(cluster, flux(cluster), run);
    case 'agents':
      return agentsLauncher(
        cluster,
        adminApi({ gateway: site.gateway, keyFile: cluster.key_file ?? '', caFile: site.ca_file }),
      );
  }
}
