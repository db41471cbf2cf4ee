import type { TaskSource } from '../../../research/regions/simulator/workload.ts';
import { loadHardware } from '../../../research/regions/world/hardware.ts';
import type { Task } from '../../../research/regions/world/tasks.ts';
import { topologyOf } from '../../../research/regions/world/topology.ts';
import { type World, worldOf } from '../../../research/regions/world/world.ts';
import { catalogue } from '../../scheduler/support/small.ts';

export { catalogue };

/** A line of `regions` regions, 1,000 km apart. */
export function lineWorld(regions: number, seed = 1): World {
  const topology = topologyOf({
    id: 'line',
    about: '',
    mean_latency_ms: 20,
    nodes: Array.from({ length: regions }, (_, i) => ({ name: `r${i}`, zone: 'PL', at: [i, 0] as [number, number] })),
    links: Array.from({ length: regions - 1 }, (_, i) => [i, i + 1, 1000] as [number, number, number]),
  });
  return worldOf(topology, seed, loadHardware(catalogue));
}

/** Only these tasks; expects nothing. */
export function listed(tasks: readonly Task[], world: World): TaskSource {
  let at = 0;
  return {
    next: () => tasks[at++],
    expected: () => world.topology.regions.map(() => world.models.map(() => 0)),
  };
}
