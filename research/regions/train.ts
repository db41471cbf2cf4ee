/**
 * `npm run --prefix research train:regions [-- --topology ID,… --iterations N --slots N --seed N --out FILE]`: trains
 * one policy on the paper's topologies, prints the curve, and writes the best point of the curve to
 * research/data/regions/policy.json.
 */
import { parseArgs } from 'node:util';
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { researchData } from '../data-path.ts';
import { roundRobin } from './baselines/round-robin.ts';
import { sdib } from './baselines/sdib.ts';
import { skyLb } from './baselines/skylb.ts';
import { writePolicy } from './macro/ppo/policy-file.ts';
import { train } from './macro/ppo/train.ts';
import { simulateRegions } from './simulator/simulate.ts';
import { DEFAULT_LOAD, PoissonTasks, SLOT_S } from './simulator/workload.ts';
import { TOPOLOGY_IDS } from './world/topology.ts';
import { buildWorld, type World } from './world/world.ts';

const { values } = parseArgs({
  options: {
    topology: { type: 'string', default: TOPOLOGY_IDS.join() },
    iterations: { type: 'string', default: '40' },
    slots: { type: 'string', default: '45' },
    seed: { type: 'string', default: '1' },
    out: { type: 'string', default: researchData('regions/policy.json') },
  },
});

/** `paper:torta` evaluates 1 to 10, and 1,001 to 1,010 on the topologies that are kept back. */
const [TRACES, VALIDATION, WORLD_SEED] = [[101, 102, 103, 104, 105, 106, 107, 108], [201, 202], 101];

const topologies = values.topology.split(',');
const slots = Number(values.slots);
const catalogue = loadCatalogue();
const worlds = topologies.map((id) => buildWorld(id, WORLD_SEED, catalogue));

/** S_0: mean over the paper's baselines. */
async function reactiveChange(world: World): Promise<number> {
  let sum = 0;
  const makes = [roundRobin, skyLb, sdib];
  for (const make of makes) {
    const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed: 101, load: DEFAULT_LOAD });
    sum += (await simulateRegions({ world, source, policy: make(), slots, slotS: SLOT_S })).shareChange;
  }
  return sum / makes.length;
}

const reactive: number[] = [];
for (const world of worlds) reactive.push(await reactiveChange(world));
const options = {
  seed: Number(values.seed),
  iterations: Number(values.iterations),
  slots,
  traces: TRACES,
  validation: VALIDATION,
  checkEvery: 8,
  reactive,
  told: (line: string) => console.log(line),
};
writePolicy(values.out, topologies, await train(worlds, options), options);
console.log(`wrote ${values.out}`);
