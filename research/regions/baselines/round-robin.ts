import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';

/** Uses the servers that hold the model in turn, in any region. */
export function roundRobin(): RegionPolicy {
  const turns: number[] = [];
  return {
    name: 'round-robin',
    choose({ task }, cluster) {
      const hosts = cluster.hosts(task.model);
      let turn = turns[task.model] ?? 0;
      for (let tried = 0; tried < hosts.length; tried++) {
        const server = hosts[turn++ % hosts.length];
        if (server === undefined || server.queued >= QUEUE_MAX) continue;
        turns[task.model] = turn;
        return server;
      }
      return undefined;
    },
  };
}
