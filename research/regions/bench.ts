/**
 * `npm run --prefix research bench:regions`: measures the tasks per second of wall time of the region simulator, and
 * the seconds of one decision.
 */
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { smoothTransport } from '../../scheduler/regions/smooth-transport.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { roundRobin } from './baselines/round-robin.ts';
import { smoothed } from './macro/forecast.ts';
import { smoothingPlanner } from './macro/smoothing-planner.ts';
import { torta } from './micro/torta.ts';
import { Cluster } from './simulator/cluster.ts';
import type { RegionPolicy } from './simulator/policy.ts';
import { Recorder } from './simulator/recorder.ts';
import { simulateRegions } from './simulator/simulate.ts';
import { DEFAULT_LOAD, PoissonTasks, SLOT_S } from './simulator/workload.ts';
import { largeWorld } from './world/large-world.ts';
import { TASK_TYPES } from './world/tasks.ts';
import { buildWorld, type World } from './world/world.ts';

const SLOTS = 480;
/** Requirements. */
const [ROUND_ROBIN_LEAST, MICRO_LEAST, DECISION_MOST_S] = [200_000, 30_000, 1];
const [REGIONS, TASKS, KINDS] = [50, 100_000, 5];
const [SERVERS, RATE] = [200, 1_000];

const catalogue = loadCatalogue();

async function tasksPerS(topology: string, make: (world: World) => RegionPolicy): Promise<number> {
  const world = buildWorld(topology, 1, catalogue);
  const source = new PoissonTasks(world, { slots: SLOTS, slotS: SLOT_S, seed: 1, load: DEFAULT_LOAD });
  const started = performance.now();
  const { arrived } = await simulateRegions({ world, source, policy: make(world), slots: SLOTS, slotS: SLOT_S });
  return arrived / ((performance.now() - started) / 1e3);
}

/** One plan for 50 regions: tasks aggregated by origin and type, places by region and kind of server. */
function decisionS(): number {
  const random = seededRandom(1);
  const [rows, columns] = [REGIONS * TASK_TYPES.length, REGIONS * KINDS];
  const cost = new Float64Array(rows * columns).map(() => 5 + 30 * random());
  const load = new Float64Array(rows * columns).map(() => 5 + 30 * random());
  const mass = new Float64Array(rows).map(() => (2 * random() * TASKS) / rows);
  const capacity = new Float64Array(columns).map(() => (2 * random() * 16 * TASKS) / columns);
  const started = performance.now();
  smoothTransport(
    { rows, columns, mass, cost, load, capacity },
    new Float64Array(rows * columns).fill(1 / columns),
    0.5,
  );
  return (performance.now() - started) / 1e3;
}

/** A slot of both layers: 50 regions with 200 servers each, 1,000 requests per second. */
async function slotS(): Promise<number> {
  const world = largeWorld(REGIONS, SERVERS, catalogue);
  const cluster = new Cluster(world, new Recorder(world));
  const policy = torta({ macro: smoothingPlanner(), forecast: smoothed(world) });
  const tasks = (RATE * SLOT_S) / REGIONS;
  const arrived = world.topology.regions.map(() => world.models.map(({ share }) => tasks * share));
  let seconds = 0;
  // Slot 1 is the first that knows the demand, and solves without a start: once per process, so it is left out.
  for (let slot = 0; slot < 5; slot++) {
    cluster.nowS = slot * SLOT_S;
    const started = performance.now();
    await policy.slot?.({ slot, slotS: SLOT_S, arrived, routed: arrived }, cluster);
    if (slot > 1) seconds = Math.max(seconds, (performance.now() - started) / 1e3);
  }
  return seconds;
}

function told(name: string, value: number, met: boolean, asked: string): boolean {
  console.log(
    `${met ? 'met   ' : 'MISSED'} ${name}: ${value.toLocaleString('en', { maximumSignificantDigits: 3 })} (${asked})`,
  );
  return met;
}

const held: boolean[] = [];
for (const topology of ['abilene', 'cost266']) {
  const alone = await tasksPerS(topology, roundRobin);
  held.push(
    told(`${topology}, round robin, tasks/s`, alone, alone >= ROUND_ROBIN_LEAST, `at least ${ROUND_ROBIN_LEAST}`),
  );
  const both = await tasksPerS(topology, (world) => torta({ macro: smoothingPlanner(), forecast: smoothed(world) }));
  held.push(told(`${topology}, macro and micro layer, tasks/s`, both, both >= MICRO_LEAST, `at least ${MICRO_LEAST}`));
}
const seconds = decisionS();
held.push(
  told(
    `plan of ${REGIONS} regions and ${TASKS} tasks, s`,
    seconds,
    seconds < DECISION_MOST_S,
    `below ${DECISION_MOST_S}`,
  ),
);
const slot = await slotS();
held.push(
  told(
    `slot of ${REGIONS} regions with ${SERVERS} servers and ${RATE} requests/s, s`,
    slot,
    slot < DECISION_MOST_S,
    `below ${DECISION_MOST_S}`,
  ),
);
process.exitCode = held.every(Boolean) ? 0 : 1;
