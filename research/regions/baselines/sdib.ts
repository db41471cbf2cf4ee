import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import type { Server } from '../simulator/server.ts';

/**
 * SDIB as the paper describes it: keeps the standard deviation of the servers' load and their mean idle time low. Adding to the least loaded
 * server lowers the deviation most; of those without any work the one that has been idle longest gets it.
 */
export function sdib(): RegionPolicy {
  return {
    name: 'sdib',
    choose({ task }, cluster) {
      let [best, least, longest]: [Server | undefined, number, number] = [undefined, Number.POSITIVE_INFINITY, 0];
      for (const server of cluster.hosts(task.model)) {
        if (server.queued >= QUEUE_MAX) continue;
        const load = Math.max(0, server.freeS - cluster.nowS) + server.backlogS;
        if (load > least || (load === least && server.idleSinceS >= longest)) continue;
        best = server;
        least = load;
        longest = server.idleSinceS;
      }
      return best;
    },
  };
}
