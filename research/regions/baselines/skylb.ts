import { type Cluster, QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import { IDLE, type Server } from '../simulator/server.ts';

/** Prefixes that are remembered with their server. */
const PREFIXES_MAX = 100_000;

/**
 * SkyLB (arXiv 2505.24095): a task stays in its region while a server there is free, preferring the server of its
 * prefix. Otherwise it goes to the nearest region with a free server. If all are busy, it waits in its region. The
 * prefix trie is a map here, because a task has one prefix.
 */
export function skyLb(): RegionPolicy {
  const homes = new Map<number, Server>();
  const neighbours: number[][] = [];
  return {
    name: 'skylb',
    choose(job, cluster) {
      const { origin, model, prefix } = job.task;
      const hosts = cluster.hosts(model);
      const home = prefix < 0 ? undefined : homes.get(prefix);
      const chosen =
        home?.phase === IDLE && home.alive && home.model === model
          ? home
          : (nearestFree(hosts, nearest(neighbours, cluster, origin)) ?? shortest(hosts, origin));
      if (chosen !== undefined && prefix >= 0) remember(homes, prefix, chosen);
      return chosen;
    },
  };
}

/** `rank[region]`: number of regions that are nearer to the origin. */
function nearest(known: number[][], cluster: Cluster, origin: number): number[] {
  let rank = known[origin];
  if (rank === undefined) {
    const order = cluster.alive
      .map((_, r) => r)
      .sort((a, b) => cluster.latencyS(origin, a) - cluster.latencyS(origin, b));
    rank = order.map(() => 0);
    for (const [place, region] of order.entries()) rank[region] = place;
    known[origin] = rank;
  }
  return rank;
}

function nearestFree(hosts: readonly Server[], rank: readonly number[]): Server | undefined {
  let [best, least]: [Server | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const server of hosts) {
    const place = rank[server.region] ?? 0;
    if (server.phase !== IDLE || place >= least) continue;
    best = server;
    least = place;
  }
  return best;
}

/** In the task's region if a host is there, otherwise anywhere. */
function shortest(hosts: readonly Server[], origin: number): Server | undefined {
  let [best, least]: [Server | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const server of hosts) {
    if (server.queued >= QUEUE_MAX) continue;
    const length = server.queued + (server.region === origin ? 0 : QUEUE_MAX / 2);
    if (length >= least) continue;
    best = server;
    least = length;
  }
  return best;
}

function remember(homes: Map<number, Server>, prefix: number, server: Server): void {
  homes.delete(prefix);
  homes.set(prefix, server);
  const oldest = homes.keys().next().value;
  if (homes.size > PREFIXES_MAX && oldest !== undefined) homes.delete(oldest);
}
