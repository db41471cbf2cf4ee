import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findModel } from '../../scheduler/catalogue/catalogue.ts';
import { kvCapacityTokens } from '../../scheduler/roofline/model-deployment.ts';
import { DEFAULT_LIMITS, type SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { PrefixCache } from '../../scheduler/simulator/prefix-cache.ts';
import { requestsFromTrace, type TraceRow } from '../../scheduler/simulator/request-arrivals.ts';
import { simulate } from '../../scheduler/simulator/simulate.ts';
import { SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import { catalogue, stepModelOf } from './support/small.ts';

const STEP = stepModelOf({ ...findModel(catalogue, 'Llama-2-13b-hf'), context: 0 }, 'A100-80-SXM');
const LIMITS: SimulatedEngineLimits = { ...DEFAULT_LIMITS, prefixBlockTokens: 64 };

const run = (rows: readonly TraceRow[], limits = LIMITS) =>
  simulate({
    model: 'm',
    groups: [{ step: STEP, replicas: 1, weight: 1 }],
    requests: requestsFromTrace(rows),
    limits,
    policy: 'weighted',
    seed: 1,
  });

describe('prompts that begin alike', () => {
  const turn = (arrival: number, hashes: number[]): TraceRow => ({
    arrival,
    input: hashes.length * 64 + 10,
    output: 20,
    hashes,
  });

  it('are computed once: the second turn of a conversation computes only what is new', () => {
    const first = [1, 2, 3, 4, 5, 6, 7, 8];
    const result = run([turn(0, first), turn(60, [...first, 9, 10])]);
    expect(result.prefixHit).toBeCloseTo((8 * 64) / (8 * 64 + 10 + 10 * 64 + 10));
    expect(run([turn(0, first), turn(60, [11, 12])]).prefixHit).toBe(0);
  });

  it('are not shared behind a block that differs', () => {
    expect(run([turn(0, [1, 2, 3]), turn(60, [9, 2, 3])]).prefixHit).toBe(0);
  });

  it('answer sooner', () => {
    const shared = Array.from({ length: 100 }, (_, i) => i + 1);
    const [again, other] = [
      run([turn(0, shared), turn(60, shared)]),
      run([
        turn(0, shared),
        turn(
          60,
          shared.map((id) => id + 500),
        ),
      ]),
    ];
    expect(again.ttft.p50).toBeLessThan(other.ttft.mean / 2);
  });

  it('are forgotten when the memory is needed, the longest unused first', () => {
    const tight = { ...LIMITS, memoryFraction: 0.41 };
    const room = kvCapacityTokens(STEP.deployment, tight.memoryFraction);
    const half = Array.from({ length: Math.ceil(room / 64 / 2) }, (_, i) => i + 1);
    const filler = half.map((id) => id + 10_000);
    const rows = [
      turn(0, half),
      turn(100, filler),
      turn(
        200,
        filler.map((id) => id + 10_000),
      ),
      turn(300, half),
    ];
    expect(run(rows, tight).prefixHit).toBe(0);
    expect(run(rows, { ...LIMITS, memoryFraction: 0.9 }).prefixHit).toBeGreaterThan(0.2);
  });
});

describe('the cache of a replica', () => {
  it('never holds more than its memory, and all memory comes back, whatever is shared', () => {
    const rows = fc.array(
      fc.record({
        family: fc.integer({ min: 0, max: 3 }),
        blocks: fc.integer({ min: 0, max: 20 }),
        output: fc.integer({ min: 1, max: 300 }),
        gap: fc.double({ min: 0, max: 2, noNaN: true }),
      }),
      { minLength: 1, maxLength: 30 },
    );
    fc.assert(
      fc.property(rows, (drawn) => {
        const ended = new Set<number>();
        const tight = { ...LIMITS, memoryFraction: 0.41 };
        const replica = new SimulatedEngine(STEP, tight, (request) => ended.add(request));
        let at = 0;
        drawn.forEach(({ family, blocks, output, gap }, i) => {
          at += gap;
          const hashes = Array.from({ length: blocks }, (_, b) => family * 1000 + b);
          replica.push(i, at, blocks * 64 + 7, output, false, hashes);
        });
        replica.run(Number.POSITIVE_INFINITY);
        expect(ended.size).toBe(drawn.length);
        expect(replica.memoryInUse).toBe(0);
        expect(replica.counters.kvPeak).toBeLessThanOrEqual(1);
      }),
      { numRuns: 60 },
    );
  });

  it('keeps what is in use and drops idle blocks from the end of a chain first', () => {
    const cache = new PrefixCache();
    cache.add([1, 2, 3], 0);
    expect(cache.match([1, 2, 3, 4])).toBe(3);
    cache.trim(0);
    expect(cache.match([1, 2, 3])).toBe(3);
    expect(cache.release([1, 2, 3])).toBe(3);
    cache.trim(2);
    expect(cache.match([1, 2, 3])).toBe(2);
  });
});
