import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import type { Server } from '../simulator/server.ts';

/**
 * Like latency-greedy, but any server that the model fits may load it. This shows which part of the two layers' gain is
 * due only to that freedom. No baseline of the paper has it.
 */
export function loadingGreedy(): RegionPolicy {
  return {
    name: 'loading-greedy',
    choose(job, cluster) {
      const { origin, model } = job.task;
      let [best, least]: [Server | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
      for (const server of cluster.servers) {
        if (!server.open || server.queued >= QUEUE_MAX || !cluster.fits(server, model)) continue;
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
