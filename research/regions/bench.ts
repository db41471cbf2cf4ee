/**
 * `npm run --prefix research bench:regions`: measures the tasks per second of CPU time of the region simulator,
 * the seconds of one decision, and what groups of regions cost.
 */
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { smoothTransport } from '../../scheduler/regions/smooth-transport.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { activated } from './baselines/activated.ts';
import { latencyGreedy } from './baselines/latency-greedy.ts';
import { roundRobin } from './baselines/round-robin.ts';
import { coarsePlanner } from './macro/coarse-planner.ts';
import { smoothed } from './macro/forecast.ts';
import { objectiveS } from './macro/objective.ts';
import type { MacroPlanner } from './macro/problem.ts';
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
/** Of a plan in groups. `simulated`: servers of a region in the simulation. */
const MANY = { regions: 1_000, servers: 20, rate: 1_000, groups: 32, mostS: 10, simulated: 5, greedyMost: 10 };
/** Loss of objective (1) by groups, percent. */
const COARSE_MOST = 3;

const catalogue = loadCatalogue();

/** Seconds of CPU time of this process: other work on the machine changes them little. */
function cpuS(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

async function tasksPerS(topology: string, make: (world: World) => RegionPolicy): Promise<number> {
  const world = buildWorld(topology, 1, catalogue);
  const source = new PoissonTasks(world, { slots: SLOTS, slotS: SLOT_S, seed: 1, load: DEFAULT_LOAD });
  const startedS = cpuS();
  const { arrived } = await simulateRegions({ world, source, policy: make(world), slots: SLOTS, slotS: SLOT_S });
  return arrived / (cpuS() - startedS);
}

/** One plan for 50 regions: tasks aggregated by origin and type, places by region and kind of server. */
function decisionS(): number {
  const random = seededRandom(1);
  const [rows, columns] = [REGIONS * TASK_TYPES.length, REGIONS * KINDS];
  const cost = new Float64Array(rows * columns).map(() => 5 + 30 * random());
  const load = new Float64Array(rows * columns).map(() => 5 + 30 * random());
  const mass = new Float64Array(rows).map(() => (2 * random() * TASKS) / rows);
  const capacity = new Float64Array(columns).map(() => (2 * random() * 16 * TASKS) / columns);
  const startedS = cpuS();
  smoothTransport(
    { rows, columns, mass, cost, load, capacity },
    new Float64Array(rows * columns).fill(1 / columns),
    0.5,
  );
  return cpuS() - startedS;
}

/**
 * Seconds of a slot of both layers: of the first that knows the demand, which solves without a start, and the most of
 * the later ones. `rate`: requests per second.
 */
async function slotS(macro: MacroPlanner, regions: number, servers: number, rate: number): Promise<[number, number]> {
  const world = largeWorld(regions, servers, catalogue);
  const cluster = new Cluster(world, new Recorder(world));
  const policy = torta({ macro, forecast: smoothed(world) });
  const tasks = (rate * SLOT_S) / regions;
  const arrived = world.topology.regions.map(() => world.models.map(({ share }) => tasks * share));
  const seconds: number[] = [];
  for (let slot = 0; slot < 5; slot++) {
    cluster.nowS = slot * SLOT_S;
    const startedS = cpuS();
    await policy.slot?.({ slot, slotS: SLOT_S, arrived, routed: arrived }, cluster);
    seconds.push(cpuS() - startedS);
  }
  return [seconds[1] ?? Number.NaN, Math.max(...seconds.slice(2))];
}

/** Objective (1) of one macro planner relative to another in the same world with the same arrivals, percent. */
async function relativeObjective(world: World, slots: number, ours: RegionPolicy, theirs: RegionPolicy) {
  const run = (policy: RegionPolicy) => {
    const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed: 1, load: DEFAULT_LOAD });
    return simulateRegions({ world, source, policy, slots, slotS: SLOT_S });
  };
  const [own, other] = [await run(ours), await run(theirs)];
  const done = own.completed / Math.max(1, own.arrived);
  return { percent: 100 * (objectiveS(own) / objectiveS(other) - 1), done };
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
const below = `below ${DECISION_MOST_S}`;
const size = `${REGIONS} regions with ${SERVERS} servers and ${RATE} requests/s`;
const [first, later] = await slotS(smoothingPlanner(), REGIONS, SERVERS, RATE);
held.push(told(`first plan of ${size}, s`, first, first < DECISION_MOST_S, below));
held.push(told(`later slots of ${size}, s`, later, later < DECISION_MOST_S, below));

const planned = (world: World, macro: MacroPlanner) => torta({ macro, forecast: smoothed(world) });
for (const [world, slots, groups] of [
  [buildWorld('cost266', 1, catalogue), 60, 6],
  [largeWorld(100, 20, catalogue), 20, 10],
] as const) {
  const { percent } = await relativeObjective(
    world,
    slots,
    planned(world, coarsePlanner(groups)),
    planned(world, smoothingPlanner()),
  );
  const name = `objective (1) of ${groups} groups against one QP, ${world.topology.id}, %`;
  held.push(told(name, percent, percent < COARSE_MOST, `below ${COARSE_MOST}`));
}
const many = `${MANY.regions} regions with ${MANY.servers} servers and ${MANY.rate} requests/s`;
const [firstOfMany, laterOfMany] = await slotS(coarsePlanner(MANY.groups), MANY.regions, MANY.servers, MANY.rate);
held.push(
  told(
    `first plan of ${many} in ${MANY.groups} groups, s`,
    firstOfMany,
    firstOfMany < MANY.mostS,
    `below ${MANY.mostS}`,
  ),
);
held.push(
  told(
    `later slots of ${many} in ${MANY.groups} groups, s`,
    laterOfMany,
    laterOfMany < MANY.mostS,
    `below ${MANY.mostS}`,
  ),
);
const world = largeWorld(MANY.regions, MANY.simulated, catalogue);
const greedy = activated(latencyGreedy());
const simulated = await relativeObjective(world, 8, planned(world, coarsePlanner(MANY.groups)), greedy);
held.push(
  told(
    `objective (1) of ${MANY.groups} groups against latency-greedy with activation, ${MANY.regions} regions, %`,
    simulated.percent,
    simulated.percent < MANY.greedyMost,
    `below ${MANY.greedyMost}`,
  ),
);
held.push(
  told(`completed tasks of ${MANY.regions} regions, %`, 100 * simulated.done, simulated.done > 0.995, 'above 99.5'),
);
process.exitCode = held.every(Boolean) ? 0 : 1;
