import { openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { Cluster } from './cluster.ts';

/**
 * A gateway with a replica outside Slurm, a Slurm next to it, and the file with the token with which jobs join.
 * `endAll` ends it.
 */
export interface Place {
  house: TestCluster;
  cluster: Cluster;
  token: string;
}

export async function openPlace(): Promise<Place> {
  const house = await openTestCluster();
  const cluster = await Cluster.up();
  return { house, cluster, token: await cluster.secret('token', await house.gateway.createJoinToken('hpc', 'alps')) };
}
