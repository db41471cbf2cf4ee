import type { Cluster } from '../simulator/cluster.ts';
import { ASLEEP, type Job } from '../simulator/server.ts';
import { activate } from './activation.ts';
import { type LayoutOptions, wantedServers, wholeServers } from './layout.ts';
import { countKinds } from './observed.ts';

/**
 * Assumed work of an awake server, as a share of its time. (6) adds a margin for randomness to every kind and model,
 * and rounding up adds more, so that servers work less in the end. Of 0.5, 0.7, 0.9 and 1.1, values near 0.9 gave the
 * best objective (1) for ours and for each baseline.
 */
export const AWAKE_USE = 0.95;

/**
 * Moves each region towards the servers that (6) wants awake. `expected`: tasks of the slot, `[region][model]`; tasks
 * that wait there are added. `prices`: USD per kWh by region.
 */
export function keepAwake(
  cluster: Cluster,
  expected: readonly (readonly number[])[],
  prices: readonly number[],
  layout: LayoutOptions,
): void {
  const { world } = cluster;
  for (const [region, servers] of cluster.byRegion.entries()) {
    if (!cluster.alive[region]) continue;
    const tasks = world.models.map((_, model) => expected[region]?.[model] ?? 0);
    for (const server of servers)
      for (let job = server.head; job !== undefined; job = job.next)
        tasks[job.task.model] = (tasks[job.task.model] ?? 0) + 1;
    const counts = countKinds(servers, world.kinds.length);
    const wanted = wantedServers(world, counts, tasks, prices[region] ?? 0, layout);
    activate(
      cluster,
      region,
      wanted.map((line, kind) => wholeServers(line, counts[kind] ?? 0)),
    );
  }
}

/** Wakes a server for each task without one: the quickest that fits, in the region nearest to the task's origin. */
export function wakeForHeld(held: readonly Job[], cluster: Cluster): void {
  for (const { task } of held) {
    const sleeping = (region: number) =>
      (cluster.byRegion[region] ?? []).filter(
        (one) => one.phase === ASLEEP && one.alive && cluster.fits(one, task.model),
      );
    const [nearest] = cluster.alive
      .flatMap((alive, region) => (alive && sleeping(region).length > 0 ? [region] : []))
      .sort((a, b) => cluster.latencyS(task.origin, a) - cluster.latencyS(task.origin, b));
    if (nearest === undefined) return;
    const soonest = sleeping(nearest).sort((a, b) => a.coldStartS - b.coldStartS)[0];
    if (soonest !== undefined) cluster.wake(soonest, task.model);
  }
}
