import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  densityGradient,
  digamma,
  logDensity,
  logGamma,
  sampleBeta,
} from '../../../research/regions/macro/ppo/beta.ts';
import { countServers, distance2 } from '../../../research/regions/macro/ppo/environment.ts';
import { policyPlanner } from '../../../research/regions/macro/ppo/planner.ts';
import { BetaPolicy, normaliseRows, stateSize } from '../../../research/regions/macro/ppo/policy.ts';
import { readPolicy, writePolicy } from '../../../research/regions/macro/ppo/policy-file.ts';
import { type Trained, train } from '../../../research/regions/macro/ppo/train.ts';
import { SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { lineWorld } from './support.ts';

const OPTIONS = { seed: 1, episodes: 60, slots: 40, traces: [101, 102], reactive: [0.5] };
const world = lineWorld(3);

describe('the Beta distribution', () => {
  it('has the values of known tables', () => {
    expect(logGamma(5)).toBeCloseTo(Math.log(24), 10);
    expect(logGamma(0.5)).toBeCloseTo(0.5 * Math.log(Math.PI), 10);
    expect(digamma(1)).toBeCloseTo(-0.5772156649, 9);
    expect(logDensity(0.3, 2, 3)).toBeCloseTo(Math.log(12 * 0.3 * 0.49), 10);
  });
  it('has gradients that finite differences agree with', () => {
    const [byAlpha, byBeta] = densityGradient(0.3, 2.2, 1.4);
    const h = 1e-6;
    expect(byAlpha).toBeCloseTo((logDensity(0.3, 2.2 + h, 1.4) - logDensity(0.3, 2.2 - h, 1.4)) / 2 / h, 6);
    expect(byBeta).toBeCloseTo((logDensity(0.3, 2.2, 1.4 + h) - logDensity(0.3, 2.2, 1.4 - h)) / 2 / h, 6);
  });
  it('is drawn with its mean', () => {
    const random = seededRandom(3);
    let sum = 0;
    for (let i = 0; i < 20_000; i++) sum += sampleBeta(random, 2, 6);
    expect(sum / 20_000).toBeCloseTo(0.25, 2);
  });
});

describe('the policy', () => {
  it('moves its mean towards a target that it is pulled to', () => {
    const policy = new BetaPolicy(3, seededRandom(1));
    const state = new Float64Array(stateSize(3)).fill(0.5);
    const target = Float64Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1);
    const off = () => distance2(normaliseRows(policy.mean(policy.shapes(state)), 3), target);
    const before = off();
    for (let i = 0; i < 300; i++) {
      const shapes = policy.shapes(state);
      policy.addGradient(shapes, new Float64Array(9).fill(0.5), 0, 1, target);
      policy.network.step(1);
    }
    expect(off()).toBeLessThan(0.2 * before);
  });
});

describe('training', () => {
  let folder: string;
  let trained: Trained;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'regions-policy-'));
    trained = await train(world, OPTIONS);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const input = () => ({
    world,
    demand: [0, 1, 2].map(() => [10, 4, 6]),
    servers: countServers(world),
    prices: [0.1, 0.1, 0.1],
    backlogS: [0, 0, 0],
    use: [0.5, 0.5, 0.5],
    slotS: SLOT_S,
    previous: undefined,
  });

  it('raises the reward, and checks the guarantee every ten episodes', () => {
    expect(trained.curve.at(-1)?.reward).toBeGreaterThan(trained.curve[0]?.reward ?? 0);
    expect(trained.guarantees.map(({ episode }) => episode)).toEqual([10, 20, 30, 40, 50, 60]);
    for (const { lipschitzResponse, epsilon } of trained.guarantees) {
      expect(lipschitzResponse).toBeGreaterThan(0);
      expect(Number.isFinite(epsilon)).toBe(true);
    }
  });

  it('gives the same policy for the same seed', async () => {
    const again = await train(world, { ...OPTIONS, episodes: 10 });
    const other = await train(world, { ...OPTIONS, episodes: 10 });
    expect(again.policy.network.parameters).toEqual(other.policy.network.parameters);
  });

  it('ends in a file that plans as the policy does', async () => {
    const path = join(folder, 'policy.json');
    writePolicy(path, world.topology, trained, OPTIONS);
    const plan = await policyPlanner(path, world.topology).plan(input());
    expect(plan.planner).toBe('PPO');
    for (let row = 0; row < 9; row++)
      expect(plan.shares.subarray(row * 3, row * 3 + 3).reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
  });

  it.each([
    ['that is missing', () => join(folder, 'none.json'), /no policy for regions/],
    [
      'of another topology',
      () => {
        const path = join(folder, 'other.json');
        writePolicy(path, lineWorld(4).topology, trained, OPTIONS);
        return path;
      },
      /was trained for/,
    ],
    [
      'that was cut off',
      () => {
        const path = join(folder, 'cut.json');
        writePolicy(path, world.topology, trained, OPTIONS);
        writeFileSync(path, readFileSync(path, 'utf8').slice(0, 2_000));
        return path;
      },
      /no policy for regions/,
    ],
    [
      'with too few parameters',
      () => {
        const path = join(folder, 'few.json');
        writePolicy(path, world.topology, trained, OPTIONS);
        writeFileSync(path, readFileSync(path, 'utf8').replace(/"parameters": "[^"]*"/, '"parameters": "AAAA"'));
        return path;
      },
      /parameters/,
    ],
  ])('from a file %s is refused, and the QP plans', async (_, make, message) => {
    const path = make();
    expect(() => readPolicy(path, world.topology)).toThrow(message);
    const plan = await policyPlanner(path, world.topology).plan(input());
    expect(plan.planner).toBe('smoothing QP');
    expect(plan.note).toMatch(message);
  });
});
