import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findModel } from '../../scheduler/catalogue/catalogue.ts';
import { kvCapacityTokens } from '../../scheduler/roofline/model-deployment.ts';
import { DEFAULT_LIMITS, type SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { drawLength, type LengthDistribution, meanLength } from '../../scheduler/simulator/length-distribution.ts';
import { exponential, gamma, normal, seededRandom } from '../../scheduler/simulator/random.ts';
import { drawRequests, type Requests, requestsFromRows } from '../../scheduler/simulator/request-arrivals.ts';
import { type SimulationResult, simulate } from '../../scheduler/simulator/simulate.ts';
import { SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import { publicModel } from './support/public-models.ts';
import { catalogue, stepModelOf } from './support/small.ts';

/** Its context is unknown, so that only the memory ends a request. */
const STEP = stepModelOf({ ...findModel(catalogue, 'Llama-2-13b-hf'), context: 0 }, 'A100-80-SXM');
/** Leaves memory for about 5,500 tokens, so pre-emption is the rule. */
const TIGHT: SimulatedEngineLimits = { ...DEFAULT_LIMITS, memoryFraction: 0.41 };

/** Ends by request. Steps either leap as far as possible, or run one at a time (`stepwise`). */
function run(requests: Requests, limits: SimulatedEngineLimits, stepwise: boolean, step = STEP) {
  const ends = new Map<number, { first: number | undefined; end: number }>();
  const replica = new SimulatedEngine(step, limits, (request, first, end) => {
    expect(ends.has(request)).toBe(false);
    ends.set(request, { first, end });
  });
  for (let i = 0; i < requests.count; i++)
    replica.push(i, requests.arrival[i] ?? 0, requests.input[i] ?? 1, requests.output[i] ?? 1);
  if (stepwise) {
    // No step is shorter than a millisecond, so each call runs at most one.
    for (let until = 0; ends.size < requests.count; until += 0.001) replica.run(Math.max(until, replica.clock + 1e-9));
  }
  replica.run(Number.POSITIVE_INFINITY);
  return { ends, counters: replica.counters, load: replica.load };
}

const rows = (max: number) =>
  fc.array(
    fc
      .tuple(fc.double({ min: 0, max: 5, noNaN: true }), fc.integer({ min: 1, max }), fc.integer({ min: 1, max: 200 }))
      .map(([a, b, c]) => [a, b, c] as const),
    { minLength: 1, maxLength: 25 },
  );

describe('a replica', () => {
  it('ends every request once, whatever comes, and owes nothing afterwards', () => {
    fc.assert(
      fc.property(rows(3000), fc.boolean(), fc.boolean(), fc.boolean(), (list, chunkedPrefill, tight, first) => {
        const limits: SimulatedEngineLimits = {
          ...(tight ? TIGHT : DEFAULT_LIMITS),
          chunkedPrefill,
          schedule: first ? 'prefill-first' : 'mixed',
          maxSequences: 8,
        };
        const requests = requestsFromRows(list);
        const { ends, load } = run(requests, limits, false);
        expect(ends.size).toBe(requests.count);
        expect(load).toBe(0);
        for (const [i, { first: token, end }] of ends) {
          if (token === undefined) continue;
          expect(token).toBeGreaterThan(requests.arrival[i] ?? 0);
          expect(end).toBeGreaterThanOrEqual(token);
        }
      }),
      { numRuns: 150, seed: 1 },
    );
  });

  it('many steps at once end at the same times as one after the other', () => {
    fc.assert(
      fc.property(rows(900), fc.boolean(), (list, tight) => {
        const requests = requestsFromRows(list);
        const limits: SimulatedEngineLimits = { ...(tight ? TIGHT : DEFAULT_LIMITS), maxSequences: 8 };
        const [leaps, steps] = [run(requests, limits, false), run(requests, limits, true)];
        for (const [i, { first, end }] of leaps.ends) {
          expect(steps.ends.get(i)?.first).toBeCloseTo(first ?? Number.NaN, 6);
          expect(steps.ends.get(i)?.end).toBeCloseTo(end, 6);
        }
        expect(steps.counters.decodeTokens).toBe(leaps.counters.decodeTokens);
        expect(steps.counters.preemptions).toBe(leaps.counters.preemptions);
      }),
      { numRuns: 25, seed: 2 },
    );
  });

  // A window fills while its sequence decodes, which ends a leap; a state costs the same in every step.
  it.each([
    ['a model with windows', publicModel('google/gemma-3-27b-it'), 0.8],
    ['a hybrid with recurrent states', publicModel('nvidia/Nemotron-3-Nano-30B-A3B'), 0.9],
    ['latent attention', publicModel('deepseek-ai/DeepSeek-V2-Lite'), 0.9],
  ])('the same holds for %s', (_name, model, memoryFraction) => {
    const step = stepModelOf(model, 'H100-SXM');
    fc.assert(
      fc.property(rows(2500), (list) => {
        const requests = requestsFromRows(list);
        const limits: SimulatedEngineLimits = { ...DEFAULT_LIMITS, memoryFraction, maxSequences: 8 };
        const [leaps, steps] = [run(requests, limits, false, step), run(requests, limits, true, step)];
        for (const [i, { end }] of leaps.ends) expect(steps.ends.get(i)?.end).toBeCloseTo(end, 6);
        expect(steps.counters.decodeTokens).toBe(leaps.counters.decodeTokens);
      }),
      { numRuns: 8, seed: 3 },
    );
  });

  it('a window keeps long answers as cheap as the window', () => {
    const full = { ...publicModel('google/gemma-3-27b-it') };
    const layers = full.layers.map((layer) => ({
      ...layer,
      mixers: layer.mixers.map((mixer) => (mixer.kind === 'grouped' ? { ...mixer, window: 0 } : mixer)),
    }));
    const requests = requestsFromRows([[0, 30_000, 2000]]);
    const end = (step: ReturnType<typeof stepModelOf>) =>
      run(requests, DEFAULT_LIMITS, false, step).ends.get(0)?.end ?? 0;
    expect(end(stepModelOf(full, 'H200'))).toBeLessThan(0.9 * end(stepModelOf({ ...full, layers }, 'H200')));
  });

  it('a prompt that fills the context is refused at once, and an answer ends where the context ends', () => {
    const step = stepModelOf({ ...STEP.deployment.model, context: 4096 }, 'A100-80-SXM');
    const requests = requestsFromRows([
      [0, 6000, 10],
      [1, 4000, 500],
      [2, 10, 20],
    ]);
    const { ends, counters } = run(requests, DEFAULT_LIMITS, false, step);
    expect(ends.get(0)).toEqual({ first: undefined, end: 0 });
    expect(counters.refused).toBe(1);
    // The first token of each request comes from its prompt.
    expect(counters.decodeTokens).toBe(95 + 19);
  });

  it('computes each prompt once and gives each token once where memory is plenty', () => {
    const requests = requestsFromRows([
      [0, 100, 50],
      [0.1, 2000, 1],
      [0.2, 1, 10],
    ]);
    const { counters } = run(requests, DEFAULT_LIMITS, false);
    expect(counters.prefillTokens).toBe(2101);
    // The first token of each request comes from its prompt.
    expect(counters.decodeTokens).toBe(49 + 0 + 9);
    expect(counters.preemptions).toBe(0);
  });

  it('pre-empts when memory ends, never holds more than it has, and still ends all', () => {
    const requests = requestsFromRows(Array.from({ length: 30 }, () => [0, 400, 600] as const));
    const { counters, ends } = run(requests, TIGHT, false);
    expect(counters.preemptions).toBeGreaterThan(0);
    expect(counters.kvPeak).toBeLessThanOrEqual(1);
    expect([...ends.values()].every(({ first }) => first !== undefined)).toBe(true);
  });

  it('refuses what can never fit and goes on with the others', () => {
    const room = kvCapacityTokens(STEP.deployment, TIGHT.memoryFraction);
    const requests = requestsFromRows([
      [0, room + 100, 10],
      [0, 100, 10],
      [0, 100, room + 100],
    ]);
    const { ends, counters } = run(requests, TIGHT, false);
    expect(ends.get(0)?.first).toBeUndefined();
    expect(ends.get(1)?.first).toBeDefined();
    expect(ends.get(2)?.first).toBeUndefined();
    expect(counters.refused).toBe(2);
  });
});

const simulation = (changes: Partial<Parameters<typeof simulate>[0]> = {}): SimulationResult =>
  simulate({
    model: 'm',
    groups: [{ step: STEP, replicas: 2, weight: 1 }],
    requests: drawRequests(
      {
        arrivals: { kind: 'poisson', rate: 6 },
        input: { kind: 'lognormal', mean: 500, sd: 300 },
        output: { kind: 'lognormal', mean: 150, sd: 100 },
      },
      { durationS: 120 },
      seededRandom(5),
    ),
    limits: DEFAULT_LIMITS,
    policy: 'weighted',
    seed: 5,
    ...changes,
  });

describe('a simulation', () => {
  it('is busy for all of its time at most, also where an answer is refused when it has outgrown the memory', () => {
    const room = kvCapacityTokens(STEP.deployment, TIGHT.memoryFraction);
    const requests = requestsFromRows([
      [0, 10, 10],
      [0, 10, room + 100],
    ]);
    const result = simulation({ requests, limits: TIGHT });
    expect(result.refused).toBe(1);
    expect(result.busy).toBeGreaterThan(0.4);
    expect(result.busy).toBeLessThanOrEqual(1);
  });

  it('gives the same for the same seed and another for another', () => {
    const requests = (seed: number) =>
      drawRequests(
        {
          arrivals: { kind: 'gamma', rate: 5, cv: 2 },
          input: { kind: 'constant', mean: 300 },
          output: { kind: 'constant', mean: 100 },
        },
        { durationS: 60 },
        seededRandom(seed),
      );
    const one = simulation({ requests: requests(1), policy: 'random' });
    expect(simulation({ requests: requests(1), policy: 'random' })).toEqual(one);
    expect(simulation({ requests: requests(2), policy: 'random' }).latency.mean).not.toBe(one.latency.mean);
  });

  it('weights split the traffic exactly, in any stretch of it', () => {
    const groups = [
      { step: STEP, replicas: 1, weight: 0.7 },
      { step: STEP, replicas: 1, weight: 0.3 },
    ];
    const { byGroup, requests } = simulation({ groups });
    expect(Math.abs((byGroup[0]?.requests ?? 0) - 0.7 * requests)).toBeLessThanOrEqual(1);
  });

  it.each(['random', 'round-robin', 'least-loaded', 'weighted'])('policy %s ends all requests', (policy) => {
    expect(simulation({ policy }).refused).toBe(0);
  });

  it('the least loaded replica is a better choice than a random one', () => {
    const groups = [{ step: STEP, replicas: 3, weight: 1 }];
    const mean = (policy: string) => simulation({ policy, groups }).latency.mean;
    expect(mean('least-loaded')).toBeLessThan(mean('random'));
  });

  it('a prefix cache shortens the wait for the first token', () => {
    expect(simulation({ limits: { ...DEFAULT_LIMITS, prefixHit: 0.8 } }).ttft.mean).toBeLessThan(
      simulation().ttft.mean,
    );
  });

  it('prompts computed elsewhere no longer slow the answers, and cost a transfer', () => {
    const together = simulation({ groups: [{ step: STEP, replicas: 3, weight: 1 }] });
    const apart = (bytesPerSecond: number) =>
      simulation({ prefill: { groups: [{ step: STEP, replicas: 1, weight: 1 }], bytesPerSecond } });
    expect(apart(25e9).refused).toBe(0);
    expect(apart(25e9).tpot.p99).toBeLessThan(together.tpot.p99);
    expect(apart(1e8).latency.mean).toBeGreaterThan(apart(25e9).latency.mean + 1);
  });

  it('keeps requests per time, batch and latency in proportion (Little)', () => {
    const result = simulation();
    expect(result.requestsPerS).toBeCloseTo(6, 0);
    expect(result.latency.mean).toBeCloseTo(result.ttft.mean + 149 * result.tpot.mean, -1);
    expect(result.energyJ).toBeGreaterThan(2 * 400 * 0.2 * result.durationS);
    expect(result.energyJ).toBeLessThan(2 * 400 * result.durationS);
  });
});

describe('draws', () => {
  const means = (draw: () => number) =>
    Array.from({ length: 40_000 }, draw).reduce((sum, value) => sum + value, 0) / 40_000;

  it('have the means they should', () => {
    const random = seededRandom(3);
    expect(means(() => exponential(random, 2))).toBeCloseTo(2, 1);
    expect(means(() => normal(random))).toBeCloseTo(0, 1);
    expect(means(() => gamma(random, 0.25, 4))).toBeCloseTo(1, 1);
    expect(means(() => gamma(random, 9, 1 / 9))).toBeCloseTo(1, 1);
  });

  it.each<LengthDistribution>([
    { kind: 'normal', mean: 74, sd: 211, min: 5 },
    { kind: 'normal', mean: 1169, sd: 1276, min: 5 },
    { kind: 'lognormal', mean: 300, sd: 200 },
    { kind: 'constant', mean: 10 },
    { kind: 'samples', values: [1, 2, 3] },
  ])('lengths $kind of $mean have the mean that plans count with', (lengths) => {
    const random = seededRandom(4);
    const mean = means(() => drawLength(lengths, random));
    expect(Math.abs(mean / meanLength(lengths) - 1)).toBeLessThan(0.03);
  });
});
