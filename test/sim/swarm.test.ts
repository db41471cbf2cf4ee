import { describe, expect, it } from 'vitest';
import { runSeed } from './swarm.ts';

/** SIM_SEED=n runs that one again; SIM_SEEDS=n runs as many, from SIM_FROM on. */
const only = process.env.SIM_SEED;
const count = Number(process.env.SIM_SEEDS ?? 240);
const from = Number(process.env.SIM_FROM ?? 1);
const BATCH = 20;

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
