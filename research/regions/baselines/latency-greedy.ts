import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import type { Server } from '../simulator/server.ts';

/** Each task where it is expected to be answered first: network, queue, switch and computation. It sees all servers as they are at that moment. */
export function latencyGreedy(): RegionPolicy {
  return {
    name: 'latency-greedy',
    choose(job, cluster) {
      const { origin, model } = job.task;
      let [best, least]: [Server | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
      for (const server of cluster.hosts(model)) {
        if (server.queued >= QUEUE_MAX) continue;
        const seconds =
          2 * cluster.latencyS(origin, server.region) + cluster.delayS(server, model) + cluster.serviceS(server, job);
        if (seconds >= least) continue;
        best = server;
        least = seconds;
      }
      return best;
    },
  };
}
