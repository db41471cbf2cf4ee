import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verdict } from '../../../research/papers/torta/learning.ts';
import {
  densityGradient,
  digamma,
  logDensity,
  logGamma,
  sampleBeta,
} from '../../../research/regions/macro/ppo/beta.ts';
import { stateOf } from '../../../research/regions/macro/ppo/features.ts';
import { GuaranteeProbe } from '../../../research/regions/macro/ppo/guarantee.ts';
import { policyPlanner, residualPlanner } from '../../../research/regions/macro/ppo/planner.ts';
import { readPolicy, writePolicy } from '../../../research/regions/macro/ppo/policy-file.ts';
import {
  distance2,
  distanceGradient,
  ResidualPolicy,
  shapedShares,
} from '../../../research/regions/macro/ppo/residual-policy.ts';
import { rollOut } from '../../../research/regions/macro/ppo/rollout.ts';
import { type Trained, train } from '../../../research/regions/macro/ppo/train.ts';
import { smoothingPlanner } from '../../../research/regions/macro/smoothing-planner.ts';
import { SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { ArrivalHistory, FEATURES } from '../../../scheduler/regions/learned/entry-state.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { lineWorld } from './support.ts';

const OPTIONS = {
  seed: 1,
  iterations: 4,
  slots: 12,
  traces: [101, 102],
  validation: [201],
  checkEvery: 2,
  reactive: [0.5],
};
const world = lineWorld(3);
/** Servers of a region by kind. */
const SERVERS = [4, 2, 1, 1, 2];

const input = (prices = [0.1, 0.1, 0.1]) => ({
  world,
  demand: [0, 1, 2].map(() => [10, 4, 6]),
  servers: [0, 1, 2].map(() => SERVERS),
  prices,
  backlogS: [0, 0, 0],
  use: [0.5, 0.5, 0.5],
  slotS: SLOT_S,
  previous: undefined,
});

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
  it('plans as the QP does until it has learned', async () => {
    const [learned, qp] = [residualPlanner(new ResidualPolicy(seededRandom(7))), smoothingPlanner()];
    for (const prices of [
      [0.1, 0.1, 0.1],
      [0.3, 0.05, 0.1],
    ]) {
      const [ours, theirs] = [await learned.plan(input(prices)), await qp.plan(input(prices))];
      expect(Math.sqrt(distance2(ours.shares, theirs.shares))).toBeLessThan(1e-9);
    }
  });
  it('reads prices, latencies, queues and history', () => {
    const planned = new Float64Array(9).fill(1 / 3);
    const history = () => {
      const made = new ArrivalHistory();
      made.observe([20, 20, 20]);
      return made;
    };
    const state = (own = input(), past = history()) => stateOf(own, planned, planned, past);
    const usual = state();
    expect(usual).toHaveLength(9 * FEATURES);
    expect(usual.every(Number.isFinite)).toBe(true);
    expect(state(input([0.3, 0.1, 0.1]))).not.toEqual(usual);
    expect(state({ ...input(), backlogS: [500, 0, 0] })).not.toEqual(usual);
    const [near, far] = [0, 2].map((region) => usual[region * FEATURES] ?? 0);
    expect(far).toBeGreaterThan(near ?? 0);
    const busier = history();
    busier.observe([90, 20, 20]);
    expect(state(input(), busier)).not.toEqual(usual);
  });
  it('has constraint gradients that finite differences agree with', () => {
    const random = seededRandom(5);
    const rows = () => normalized(Float64Array.from({ length: 27 }, () => random()));
    const [planned, target] = [rows(), rows()];
    const x = Float64Array.from({ length: 9 }, () => 0.3 + 0.4 * random());
    const gradient = distanceGradient(shapedShares(planned, x, 3), target, 3);
    for (let entry = 0; entry < 9; entry++) {
      const at = (step: number) => {
        const moved = x.slice();
        moved[entry] = (moved[entry] ?? 0) + step;
        return distance2(shapedShares(planned, moved, 3), target) / 3;
      };
      expect(gradient[entry]).toBeCloseTo((at(1e-6) - at(-1e-6)) / 2e-6, 6);
    }
  });
});

function normalized(values: Float64Array): Float64Array {
  return values.map((value, at) => {
    const first = at - (at % 3);
    return value / values.subarray(first, first + 3).reduce((sum, one) => sum + one, 0);
  });
}

describe('training', () => {
  let folder: string;
  let trained: Trained;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'regions-policy-'));
    trained = await train([world], OPTIONS);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it('compares each point of its curve with the QP, and keeps no policy that is worse', () => {
    expect(trained.curve.map(({ iteration }) => iteration)).toEqual([2, 4]);
    for (const { objective, distance } of trained.curve) {
      expect(Number.isFinite(objective)).toBe(true);
      expect(distance).toBeGreaterThan(0);
    }
    if (trained.curve.every(({ objective }) => objective >= 0)) {
      const last = trained.policy.network.parameters.slice(-50);
      expect(last.every((value) => value === 0)).toBe(true);
    }
  });

  it('gives the same policy for the same seed', async () => {
    const [again, other] = [await train([world], OPTIONS), await train([world], OPTIONS)];
    expect(again.curve).toEqual(other.curve);
    expect(again.policy.network.parameters).toEqual(other.policy.network.parameters);
  });

  it('counts the costs of a slot once: the mean response is that of the run', async () => {
    const { costs, result } = await rollOut({ world, seed: 3, slots: 12, policy: new ResidualPolicy() });
    const tasks = costs.reduce((sum, slot) => sum + slot.tasks.reduce((a, b) => a + b, 0), 0);
    const seconds = costs.reduce(
      (sum, slot) => sum + slot.responseS.reduce((total, s, origin) => total + s * (slot.tasks[origin] ?? 0), 0),
      0,
    );
    expect(tasks).toBeGreaterThanOrEqual(result.completed);
    expect(seconds / tasks / result.responseS.mean).toBeCloseTo(1, 1);
  });

  it("estimates the constants of the paper's guarantee", async () => {
    const probe = new GuaranteeProbe(new ResidualPolicy());
    const planner = probe.planner();
    for (const prices of [
      [0.1, 0.1, 0.1],
      [0.3, 0.05, 0.1],
    ])
      await planner.plan(input(prices));
    const found = probe.result({ shareChange: 0.1 }, 0.5);
    expect(found.epsilon).toBeLessThan(1e-9);
    expect(found.lipschitzResponse).toBeGreaterThan(0);
    expect(found.eta).toBeCloseTo(5, 9);
    expect(found.holds).toBe(true);
  });

  it('ends in a file that plans as the policy does, for any regions', async () => {
    const path = join(folder, 'policy.json');
    writePolicy(path, ['line'], trained, OPTIONS);
    const plan = await policyPlanner(path).plan(input());
    expect(plan.planner).toBe('PPO');
    for (let row = 0; row < 9; row++)
      expect(plan.shares.subarray(row * 3, row * 3 + 3).reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
  });

  it.each([
    ['that is missing', (path: string) => `${path}.none`, /not a policy for regions/],
    [
      'that was cut off',
      (path: string) => {
        writeFileSync(path, readFileSync(path, 'utf8').slice(0, 800));
        return path;
      },
      /not a policy for regions/,
    ],
    [
      'with too few parameters',
      (path: string) => {
        writeFileSync(path, readFileSync(path, 'utf8').replace(/"parameters": "[^"]*"/, '"parameters": "AAAA"'));
        return path;
      },
      /parameters/,
    ],
    [
      'with parameters that are no numbers',
      (path: string) => {
        const size = trained.policy.network.parameters.length;
        const broken = Buffer.from(new Float32Array(size).fill(Number.NaN).buffer).toString('base64');
        writeFileSync(path, readFileSync(path, 'utf8').replace(/"parameters": "[^"]*"/, `"parameters": "${broken}"`));
        return path;
      },
      /not finite/,
    ],
  ])('from a file %s is refused, and the QP plans', async (_, make, message) => {
    const whole = join(folder, 'broken.json');
    writePolicy(whole, ['line'], trained, OPTIONS);
    const path = make(whole);
    expect(() => readPolicy(path)).toThrow(message);
    const plan = await policyPlanner(path).plan(input());
    expect(plan.planner).toBe('smoothing QP');
    expect(plan.note).toMatch(message);
  });
});

describe('a verdict', () => {
  it('is level unless the whole interval is on one side', () => {
    expect(verdict({ mean: -0.01, half: 0.02 }, true)).toBe('level');
    expect(verdict({ mean: -0.03, half: 0.02 }, true)).toBe('better');
    expect(verdict({ mean: -0.03, half: 0.02 }, false)).toBe('worse');
    expect(verdict({ mean: 0.03, half: 0.02 }, true)).toBe('worse');
  });
});
