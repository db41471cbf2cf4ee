import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findModel } from '../../scheduler/catalogue/catalogue.ts';
import { freeBytes, weightBytes } from '../../scheduler/roofline/model-deployment.ts';
import { slowestStage, stageShares } from '../../scheduler/roofline/pipeline-stages.ts';
import { IDLE_STEP, type StepModel } from '../../scheduler/roofline/step-model.ts';
import { DEFAULT_LIMITS, type SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { PipelineClock } from '../../scheduler/simulator/pipeline-clock.ts';
import { SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import { pipelineSection } from '../../scheduler/validate/pipeline-section.ts';
import { catalogue, stepModelOf } from './support/small.ts';

const MODEL = { ...findModel(catalogue, 'Llama-2-13b-hf'), context: 0 };
const pipeline = (stages: number) => stepModelOf(MODEL, 'A100-80-SXM', { tp: 1, pp: stages });
/** Leaves two stages memory for about 5,300 tokens, so pre-emption is the rule. */
const TIGHT: SimulatedEngineLimits = { ...DEFAULT_LIMITS, memoryFraction: 0.2, maxSequences: 12 };

type Row = readonly [arrival: number, input: number, output: number];

function run(step: StepModel, rows: readonly Row[], limits = DEFAULT_LIMITS, stepS = Number.POSITIVE_INFINITY) {
  const ends = new Map<number, { first: number | undefined; end: number }>();
  const engine = new SimulatedEngine(step, limits, (request, first, end) => {
    expect(ends.has(request)).toBe(false);
    ends.set(request, { first, end });
  });
  for (const [i, [arrival, input, output]] of rows.entries()) engine.push(i, arrival, input, output);
  if (Number.isFinite(stepS)) for (let until = 0; ends.size < rows.length; until += stepS) engine.run(until);
  engine.run(Number.POSITIVE_INFINITY);
  return { ends, engine, last: Math.max(...[...ends.values()].map(({ end }) => end)) };
}

const requests = (max: number) =>
  fc
    .array(
      fc.tuple(
        fc.double({ min: 0, max: 5, noNaN: true }),
        fc.integer({ min: 1, max }),
        fc.integer({ min: 1, max: 200 }),
      ),
      {
        minLength: 1,
        maxLength: 40,
      },
    )
    .map((rows): Row[] => rows.sort((a, b) => a[0] - b[0]));

describe('a pipeline', () => {
  it('ends every request once, whatever comes, and owes nothing afterwards', () => {
    fc.assert(
      fc.property(
        requests(3000),
        fc.integer({ min: 2, max: 4 }),
        fc.boolean(),
        fc.boolean(),
        (rows, stages, tight, first) => {
          const limits: SimulatedEngineLimits = {
            ...(tight ? TIGHT : DEFAULT_LIMITS),
            schedule: first ? 'prefill-first' : 'mixed',
          };
          const { ends, engine } = run(pipeline(stages), rows, limits);
          expect(ends.size).toBe(rows.length);
          expect(engine.load).toBe(0);
          expect(engine.memoryInUse).toBe(0);
          expect(engine.counters.kvPeak).toBeLessThanOrEqual(1);
          for (const [i, { first: token, end }] of ends) {
            if (token === undefined) continue;
            expect(token).toBeGreaterThan(rows[i]?.[0] ?? 0);
            expect(end).toBeGreaterThanOrEqual(token);
          }
        },
      ),
      { numRuns: 100, seed: 1 },
    );
  });

  it('preempts in a full memory and computes what it preempted again', () => {
    const rows = Array.from({ length: 12 }, (): Row => [0, 400, 200]);
    const { engine, ends } = run(pipeline(2), rows, TIGHT);
    expect(engine.counters.preemptions).toBeGreaterThan(0);
    expect(ends.size).toBe(12);
    expect(engine.counters.refused).toBe(0);
  });

  it('runs many rounds at once with the same ends within a hundredth', () => {
    fc.assert(
      fc.property(requests(900), fc.integer({ min: 2, max: 4 }), (rows, stages) => {
        const step = pipeline(stages);
        const leaps = run(step, rows);
        const steps = run(step, rows, DEFAULT_LIMITS, 0.004);
        for (const [i, { end }] of leaps.ends) {
          const arrival = rows[i]?.[0] ?? 0;
          const other = steps.ends.get(i)?.end ?? Number.NaN;
          expect(Math.abs(end - other)).toBeLessThan(0.01 * (other - arrival) + 0.05);
        }
        expect(leaps.engine.counters.decodeTokens).toBe(steps.engine.counters.decodeTokens);
      }),
      { numRuns: 25, seed: 1 },
    );
  });

  it('gives a lone request the way through all stages for each token, and no more speed than one GPU', () => {
    const alone = (stages: number) =>
      run(stages === 1 ? stepModelOf(MODEL, 'A100-80-SXM') : pipeline(stages), [[0, 500, 200]]).last;
    expect(alone(2)).toBeGreaterThan(alone(1));
    expect(alone(4)).toBeGreaterThan(alone(2));
    expect(alone(4)).toBeLessThan(1.1 * alone(1));
  });

  it('leaves its other stages idle if all sequences are in one micro-batch', () => {
    // They come together, so they stay together: a step needs the tokens of the last one.
    const together = run(
      pipeline(4),
      [0, 0, 0, 0].map((at): Row => [at, 100, 400]),
    ).last;
    const apart = run(
      pipeline(4),
      [0, 0.005, 0.01, 0.015].map((at): Row => [at, 100, 400]),
    ).last;
    const one = run(pipeline(4), [[0, 100, 400]]).last;
    expect(together).toBeLessThan(1.1 * one);
    expect(apart).toBeLessThan(1.15 * one);
    const { busy } = run(pipeline(4), [[0, 100, 400]]).engine.counters;
    expect(busy).toBeCloseTo(one, 6);
  });

  it('serves a backlog faster with more stages, but not in proportion', () => {
    const rows = Array.from({ length: 1500 }, (): Row => [0, 300, 300]);
    const limits = { ...DEFAULT_LIMITS, maxSequences: 1024 };
    const [one, two, four] = [stepModelOf(MODEL, 'A100-80-SXM'), pipeline(2), pipeline(4)].map(
      (step) => run(step, rows, limits).last,
    );
    if (one === undefined || two === undefined || four === undefined) throw new Error('three runs');
    expect(one / two).toBeGreaterThan(1.2);
    expect(two / four).toBeGreaterThan(1.1);
    expect(one / four).toBeLessThan(4);
  });

  it('hands over what it holds between two steps', () => {
    const engine = new SimulatedEngine(pipeline(3), DEFAULT_LIMITS, () => {});
    for (let i = 0; i < 30; i++) engine.push(i, i * 0.01, 200, 1000);
    engine.run(5);
    const { sequences, tokenS } = engine.decoding;
    expect(sequences).toHaveLength(30);
    expect(tokenS).toBeGreaterThan(0);
    const held = engine.held();
    expect(held).toHaveLength(30);
    const taken = engine.takeRequests();
    expect(new Set(taken.map(({ request }) => request)).size).toBe(30);
    expect(taken.every(({ computed, tokens, remaining }) => computed && tokens + remaining >= 1200 - 1)).toBe(true);
    expect(engine.load).toBe(0);
    expect(engine.memoryInUse).toBe(0);
    engine.push(99, 6, 100, 10);
    engine.run(Number.POSITIVE_INFINITY);
    expect(engine.load).toBe(0);
  });
});

describe('the stages', () => {
  it('share the layers as vLLM does, the remainder before the last stage', () => {
    const layers = (count: number, stages: number) =>
      stageShares(count, stages).map((share) => Math.round(share * count));
    expect(layers(80, 4)).toEqual([20, 20, 20, 20]);
    expect(layers(81, 4)).toEqual([20, 20, 21, 20]);
    expect(layers(83, 4)).toEqual([21, 21, 21, 20]);
    expect(layers(40, 1)).toEqual([40]);
    expect(slowestStage([0.5, 0.5], 10, 2)).toBe(7);
  });

  it('process one micro-batch at a time, in order', () => {
    const clock = new PipelineClock([0.5, 0.5]);
    const batch = { host: 0, layers: 4, head: 1, hop: 0.5 };
    expect(clock.pass(0, batch)).toBeCloseTo(5.5);
    // It waits for the second stage, which is the slower one.
    expect(clock.pass(0, batch)).toBeCloseTo(8.5);
    expect(clock.roundSeconds([batch])).toBeCloseTo(5.5);
    expect(clock.roundSeconds([batch, batch])).toBeCloseTo(6);
  });

  it('hold keys and values for their layers alone, so the output head costs memory of all stages', () => {
    const model = findModel(catalogue, 'Llama-3.3-70B-Instruct');
    const { weights, kv } = model.storage;
    const { deployment } = stepModelOf(model, 'H100-SXM', { tp: 1, pp: 4 });
    const pooled = 4 * (deployment.gpu.memoryBytes * 0.9 - 2e9) - weightBytes({ model, weights, tp: 1, pp: 4 });
    expect(kv).toBe('bf16');
    expect(freeBytes(deployment)).toBeLessThan(pooled);
    expect(freeBytes(deployment)).toBeGreaterThan(0.9 * pooled);
  });

  it('make a round longer than the way of one micro-batch if one stage is slower', () => {
    const step = pipeline(4);
    const decode = { ...IDLE_STEP, decodes: 128, context: 128 * 500 };
    expect(step.bubbleSeconds(0.02, 128)).toBeGreaterThan(0);
    expect(stepModelOf(MODEL, 'A100-80-SXM').bubbleSeconds(0.02, 128)).toBe(0);
    expect(step.seconds(decode)).toBeGreaterThan(
      step.microBatch({ ...decode, decodes: 32, context: 32 * 500 }, 128).layers,
    );
  });
});

describe('published runs with pipelines', () => {
  it('are predicted within a tenth in the median, without a fit', () => {
    const { rows, checks } = pipelineSection(catalogue);
    expect(rows.filter(([, stages]) => Number(stages) > 1)).toHaveLength(27);
    for (const { limit, found } of checks) expect(found).toBeLessThanOrEqual(limit ?? 0);
  });
});
