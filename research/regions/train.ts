/**
 * `npm run --prefix research train:regions -- --topology ID [--episodes N] [--seed N]`: trains a policy, writes it to
 * research/data/regions/policy-ID.json, and prints the guarantee's constants.
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
import { buildWorld } from './world/world.ts';

const { values } = parseArgs({
  options: {
    topology: { type: 'string', default: 'abilene' },
    episodes: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
  },
});

const [SLOTS, WORLD_SEED] = [240, 1];
/** Evaluation uses 1 to 10. */
const TRACES = [101, 102, 103, 104];

const world = buildWorld(values.topology, WORLD_SEED, loadCatalogue());
const reactive: number[] = [];
for (const make of [roundRobin, skyLb, sdib]) {
  const source = new PoissonTasks(world, { slots: SLOTS, slotS: SLOT_S, seed: 101, load: DEFAULT_LOAD });
  const run = await simulateRegions({ world, source, policy: make(), slots: SLOTS, slotS: SLOT_S });
  reactive.push(run.shareChange);
}
const options = {
  seed: Number(values.seed),
  episodes: Number(values.episodes),
  slots: SLOTS,
  traces: TRACES,
  reactive,
  told: (line: string) => console.log(line),
};
const trained = await train(world, options);
const path = researchData(`regions/policy-${values.topology}.json`);
writePolicy(path, world.topology, trained, options);
console.log(`wrote ${path}`);
