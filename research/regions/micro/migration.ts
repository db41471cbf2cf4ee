import type { Cluster } from '../simulator/cluster.ts';
import { BUSY, type Server } from '../simulator/server.ts';

/** A migration must save at least this many seconds, because it also takes the time of a second server. */
const GAIN_MIN_S = 5;

/** The end of a running task on another server, if it migrates there now, seconds from now. */
function endAfterMove(from: Server, to: Server, cluster: Cluster): number {
  const job = from.running;
  if (job === undefined || job.serviceS <= 0) return Number.POSITIVE_INFINITY;
  const share = cluster.remainingS(from) / job.serviceS;
  return cluster.world.migrationS + share * cluster.serviceS(to, job);
}

/** An idle server takes over the running task of its region and model that ends soonest relative to staying. */
export function migrateTo(server: Server, cluster: Cluster): void {
  let [best, most]: [Server | undefined, number] = [undefined, GAIN_MIN_S];
  for (const other of cluster.byRegion[server.region] ?? []) {
    if (other.phase !== BUSY || other.running?.task.model !== server.model) continue;
    const gain = cluster.remainingS(other) - endAfterMove(other, server, cluster);
    if (gain <= most) continue;
    best = other;
    most = gain;
  }
  if (best !== undefined) cluster.migrate(best, server);
}
