import { describe, expect, it } from 'vitest';
import { scaled } from '../support/long-form.ts';
import { runSeed } from './swarm.ts';
import { World } from './world.ts';

/** SIM_SEED=n repeats that seed; SIM_SEEDS=n runs n seeds, starting at SIM_FROM. */
const only = process.env.SIM_SEED;
const count = Number(process.env.SIM_SEEDS ?? scaled(240));
const from = Number(process.env.SIM_FROM ?? 1);
const BATCH = 20;

describe('a seed', () => {
  it('gives the same world each time, to the last byte', () => {
    const run = () => {
      const world = new World({ seed: 99, clusters: [9, 4], network: { loss: 0.03 } });
      world.run(4000);
      world.kill(world.agent(2));
      world.say(world.agent(5), 'SERVING', true);
      world.run(9000);
      const sent = world.agents.map(({ node }) => `${node.sent.bytes} ${node.sent.messages} ${node.received.messages}`);
      return JSON.stringify([sent, world.told.map(({ at, node, action }) => [at, node, action.type])]);
    };
    expect(run()).toBe(run());
  });
});

describe('random faults, then none', () => {
  if (only !== undefined) {
    it(`seed ${only} ends in peace`, () => {
      runSeed(Number(only));
    });
    return;
  }
  const batches = Array.from({ length: Math.ceil(count / BATCH) }, (_, i) => from + i * BATCH);
  it.each(batches)('seeds from %i on: nobody innocent is evicted, and all replicas end equal and at peace', (first) => {
    for (let seed = first; seed < Math.min(first + BATCH, from + count); seed++) {
      expect(runSeed(seed).equalMs).toBeLessThanOrEqual(5000);
    }
  });
});
