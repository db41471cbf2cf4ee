import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { researchData } from '../../data-path.ts';

/** Most regions of either data set and of an operator's own file. */
const REGIONS_MAX = 1_000;
/** Light in fiber: two thirds of c, 5 µs per km. */
const MS_PER_KM = 0.005;
/** Switches and queues of one hop. */
const MS_PER_HOP = 0.1;
/** Client to server inside one region. */
const LOCAL_MS = 1;

const topologySchema = z.strictObject({
  id: z.string().min(1).max(64),
  about: z.string().max(256),
  mean_latency_ms: z.number().positive(),
  nodes: z
    .array(
      z.strictObject({
        name: z.string().min(1).max(64),
        zone: z.string().min(1).max(16),
        at: z.tuple([z.number(), z.number()]),
      }),
    )
    .min(1)
    .max(REGIONS_MAX),
  links: z.array(z.tuple([z.number().int(), z.number().int(), z.number().nonnegative()])).max(REGIONS_MAX * 10),
});
const fileSchema = z.object({ topologies: z.array(topologySchema) });
type Row = z.infer<typeof topologySchema>;

/** Regions and their distances. */
export interface Topology {
  id: string;
  /** `zone`: where its electricity is priced; `at`: longitude and latitude, or km for generated graphs. */
  regions: { name: string; zone: string; at: readonly [number, number] }[];
  /** One way, seconds, `latencyS[from][to]`; infinite if there is no path. */
  latencyS: number[][];
}

/** The paper's topologies. */
export const TOPOLOGY_IDS = ['abilene', 'polska', 'gabriel25', 'cost266'] as const;
/** Topologies on which nothing was chosen, calibrated or trained. */
export const KEPT_BACK_IDS = ['nobel-eu', 'geant'] as const;

/**
 * Loads one of `data/regions/topologies.json`.
 *
 * @throws SchedulerError `usage` for an unknown id
 */
export function loadTopology(id: string): Topology {
  const { topologies } = fileSchema.parse(JSON.parse(readFileSync(researchData('regions/topologies.json'), 'utf8')));
  const row = topologies.find((one) => one.id === id);
  if (row === undefined)
    throw new SchedulerError(
      'usage',
      `no topology is called ${id}; there are ${[...TOPOLOGY_IDS, ...KEPT_BACK_IDS].join(', ')}`,
    );
  return topologyOf(row);
}

/** Shortest paths by length, scaled so that two regions are `mean_latency_ms` apart on average. */
export function topologyOf(row: Row): Topology {
  const ms = row.nodes.map((_, i) => row.nodes.map((_, j) => (i === j ? 0 : Number.POSITIVE_INFINITY)));
  for (const [a, b, km] of row.links) {
    const [from, to] = [ms[a], ms[b]];
    if (from === undefined || to === undefined)
      throw new SchedulerError('bad_input', `${row.id}: link ${a}-${b} names no node`);
    const length = km * MS_PER_KM + MS_PER_HOP;
    from[b] = Math.min(from[b] ?? length, length);
    to[a] = Math.min(to[a] ?? length, length);
  }
  closeOver(ms);
  const apart = ms.flatMap((line, i) => line.filter((value, j) => i !== j && Number.isFinite(value)));
  const mean = apart.reduce((sum, value) => sum + value, 0) / Math.max(1, apart.length);
  const scale = mean > 0 ? row.mean_latency_ms / mean : 1;
  return {
    id: row.id,
    regions: row.nodes,
    latencyS: ms.map((line, i) => line.map((value, j) => (i === j ? LOCAL_MS : value * scale) / 1e3)),
  };
}

/** Floyd and Warshall. */
function closeOver(ms: number[][]): void {
  for (const [k, via] of ms.entries()) {
    for (const line of ms) {
      const first = line[k] ?? Number.POSITIVE_INFINITY;
      for (const [j, second] of via.entries()) line[j] = Math.min(line[j] ?? Number.POSITIVE_INFINITY, first + second);
    }
  }
}
