import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import type { Server } from '../simulator/server.ts';

/**
 * SDIB as described in the paper: keeps the standard deviation of the servers' load and their mean idle time low. The
 * least loaded server lowers the deviation most; among servers without work, the task goes to the server with the
 * longest idle time.
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
