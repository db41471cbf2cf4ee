import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { type Hardware, loadHardware, type ServerKind } from './hardware.ts';
import { type Prices, pricesOf } from './price.ts';
import { TASK_MEMORY_GB, TASK_TYPES, type TaskType, TYPE_SHARES } from './tasks.ts';
import { loadTopology, type Topology } from './topology.ts';

interface ServedModel {
  id: string;
  /** Index in `TASK_TYPES` of the tasks that use it. */
  type: number;
  memoryGb: number;
  /** Share of all tasks. */
  share: number;
}

/** A server at the start of a run. */
export interface ServerSpec {
  region: number;
  /** Index in `World.kinds`. */
  kind: number;
  /** Index of its model at the start. */
  model: number;
  /** Seconds from asleep to ready, with its first model loaded. */
  coldStartS: number;
}

/** Everything that is constant during a run. */
export interface World {
  topology: Topology;
  kinds: readonly ServerKind[];
  models: readonly ServedModel[];
  servers: readonly ServerSpec[];
  prices: Prices;
  /** `switchS[kind][model]`: seconds until a server of that kind holds that model; infinite if it does not fit. */
  switchS: readonly (readonly number[])[];
  /** Seconds in which a running task moves to another server. */
  migrationS: number;
}

/** Two models for each type of task; sizes are chosen so that T4 fits only the light ones and V100 all. */
const MODELS: readonly { id: string; type: TaskType; memoryGb: number; share: number }[] = [
  { id: 'compute-a', type: 'compute', memoryGb: 16, share: 0.6 },
  { id: 'compute-b', type: 'compute', memoryGb: 14, share: 0.4 },
  { id: 'memory-a', type: 'memory', memoryGb: 18, share: 0.6 },
  { id: 'memory-b', type: 'memory', memoryGb: 16, share: 0.4 },
  { id: 'light-a', type: 'light', memoryGb: 6, share: 0.6 },
  { id: 'light-b', type: 'light', memoryGb: 4, share: 0.4 },
];
/** The model with which the paper's switch was measured: 7B parameters in 16 bits. */
const SWITCH_MEASURED_GB = 14;

/** Servers drawn from the paper's ranges, models placed by Table 1b. The same seed gives the same world. */
export function buildWorld(topologyId: string, seed: number, catalogue: HardwareCatalogue): World {
  return worldOf(loadTopology(topologyId), seed, loadHardware(catalogue));
}

export function worldOf(topology: Topology, seed: number, hardware: Hardware): World {
  const models = MODELS.map(({ id, type, memoryGb, share }) => ({
    id,
    type: TASK_TYPES.indexOf(type),
    memoryGb,
    share: share * TYPE_SHARES[type],
  }));
  return {
    topology,
    kinds: hardware.kinds,
    models,
    servers: drawServers(topology.regions.length, seed, hardware, models),
    prices: pricesOf(topology, seed),
    switchS: hardware.kinds.map((kind) =>
      models.map((model) => {
        const type = TASK_TYPES[model.type] ?? 'light';
        const fits = model.memoryGb + TASK_MEMORY_GB[type] <= kind.gpu.memoryBytes / 1e9;
        return fits ? (hardware.switchS * model.memoryGb) / SWITCH_MEASURED_GB : Number.POSITIVE_INFINITY;
      }),
    ),
    migrationS: hardware.migrationS,
  };
}

/**
 * Each kind's total is dealt to the regions in turn, starting at a random one: regions differ by at most one server of
 * each kind.
 */
function drawServers(regions: number, seed: number, hardware: Hardware, models: readonly ServedModel[]): ServerSpec[] {
  const random = seededRandom(seed);
  const [cold, coldest] = hardware.coldStartS;
  const servers: ServerSpec[] = [];
  hardware.kinds.forEach(({ made, servers: [least, most] }, kind) => {
    const total = Math.round(((least + (most - least) * random()) * regions) / 12);
    const first = Math.floor(random() * regions);
    const hosted = models.flatMap((model, index) => (TASK_TYPES[model.type] === made ? [index] : []));
    for (let n = 0; n < total; n++) {
      servers.push({
        region: (first + n) % regions,
        kind,
        model: dealt(hosted, models, n),
        coldStartS: cold + (coldest - cold) * random(),
      });
    }
  });
  return servers.sort((a, b) => a.region - b.region || a.kind - b.kind);
}

/** Model of the `n`th server, so that any sequence of servers has each model by its share. */
function dealt(hosted: readonly number[], models: readonly ServedModel[], n: number): number {
  const total = hosted.reduce((sum, index) => sum + (models[index]?.share ?? 0), 0);
  // The golden ratio spreads evenly for any number of servers.
  let at = ((n * 0.618034) % 1) * total;
  for (const index of hosted) {
    at -= models[index]?.share ?? 0;
    if (at <= 0) return index;
  }
  return hosted.at(-1) ?? 0;
}
