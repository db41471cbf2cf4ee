import type { BatchSystem, JobCluster } from '../../node/batch-systems/batch-system.ts';
import { flux } from '../../node/batch-systems/flux.ts';
import { gridEngine } from '../../node/batch-systems/grid-engine.ts';
import { htcondor } from '../../node/batch-systems/htcondor.ts';
import { lsf } from '../../node/batch-systems/lsf.ts';
import { pbs } from '../../node/batch-systems/pbs.ts';
import { slurm } from '../../node/batch-systems/slurm.ts';
import { commandRunner, type RunCommand } from '../../node/command-runner.ts';
import type { ClusterConfig, FactoryConfig } from '../config/schema.ts';
import { adminApi } from './admin-api-client.ts';
import { batchLauncher } from './batch-launcher.ts';
import { agentsLauncher } from './idle-agents.ts';
import { kubernetesLauncher } from './kubernetes.ts';
import type { Launcher } from './launcher.ts';

const BATCH_SYSTEMS: Record<BatchSystem['kind'], (cluster: JobCluster) => BatchSystem> = {
  slurm,
  'grid-engine': gridEngine,
  htcondor,
  pbs,
  lsf,
  flux,
};

/**
 * Creates the launcher of a cluster.
 * @param site the gateway's address, for idle agents, which are controlled through the gateway
 * @throws FactoryError `config`
 */
export function makeLauncher(
  cluster: ClusterConfig,
  site: Pick<FactoryConfig, 'gateway' | 'ca_file'>,
  run: RunCommand = commandRunner(),
): Launcher {
  switch (cluster.launcher) {
    case 'kubernetes':
      return kubernetesLauncher(cluster);
    case 'agents':
      return agentsLauncher(
        cluster,
        adminApi({ gateway: site.gateway, keyFile: cluster.key_file ?? '', caFile: site.ca_file }),
      );
    default:
      return batchLauncher(cluster, BATCH_SYSTEMS[cluster.launcher](cluster), run);
  }
}
