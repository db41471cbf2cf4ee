import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { loadHardware } from './hardware.ts';
import { topologyOf } from './topology.ts';
import { type World, worldOf } from './world.ts';

/** A ring of `regions` regions with about `servers` servers each, for measurements of scale. The same each time. */
export function largeWorld(regions: number, servers: number, catalogue: HardwareCatalogue): World {
  const hardware = loadHardware(catalogue);
  const perRegion = hardware.kinds.reduce((sum, { servers: [least, most] }) => sum + (least + most) / 2, 0) / 12;
  const scale = servers / perRegion;
  const kinds = hardware.kinds.map((kind) => ({
    ...kind,
    servers: [kind.servers[0] * scale, kind.servers[1] * scale] as const,
  }));
  const around = Array.from({ length: regions }, (_, i): [number, number, number] => [i, (i + 1) % regions, 200]);
  const topology = topologyOf({
    id: `ring ${regions}`,
    about: '',
    mean_latency_ms: 80,
    nodes: around.map(([i]) => ({ name: `R${i}`, zone: 'none', at: [i, 0] })),
    links: around,
  });
  return worldOf(topology, 1, { ...hardware, kinds });
}
