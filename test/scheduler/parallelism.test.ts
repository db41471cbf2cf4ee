import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findModel } from '../../scheduler/catalogue/catalogue.ts';
import { checkPlan } from '../../scheduler/planner/check-plan.ts';
import { planByMilp } from '../../scheduler/planner/milp-planner.ts';
import { predict } from '../../scheduler/planner/predict-plan.ts';
import { freeBytes, kvCapacityTokens, weightBytes } from '../../scheduler/roofline/model-deployment.ts';
import {
  gpusOf,
  type Parallelism,
  pairsOf,
  parallelismProblem,
  parallelismsOf,
  parallelismText,
} from '../../scheduler/roofline/parallelism.ts';
import { IDLE_STEP } from '../../scheduler/roofline/step-model.ts';
import { closedLoop } from '../../scheduler/simulator/closed-loop.ts';
import { DEFAULT_LIMITS } from '../../scheduler/simulator/engine-limits.ts';
import { PairReplica } from '../../scheduler/simulator/prefill-decode-pair.ts';
import { profile } from '../../scheduler/simulator/replica-profile.ts';
import type { Demand } from '../../scheduler/solver/planning-problem.ts';
import { publicModel } from './support/public-models.ts';
import { catalogue, otelaPlan, planOptions, pool, stepModelOf } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-parallelism-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const dense = findModel(catalogue, 'Llama-3.3-70B-Instruct');
const moe = publicModel('deepseek-ai/DeepSeek-V3');

/** Answer tokens per second with `clients` concurrent requests of 1,000 and 500 tokens. */
const rate = (model: typeof dense, gpu: string, parallelism: Parallelism, clients: number) =>
  closedLoop({
    step: stepModelOf(model, gpu, parallelism),
    limits: { ...DEFAULT_LIMITS, maxSequences: 2048 },
    input: { kind: 'constant', mean: 1000 },
    output: { kind: 'uniform', low: 250, high: 750 },
    clients,
    rounds: 3,
    seed: 1,
  }).tokensPerS;

const prompt = (model: typeof dense, gpu: string, parallelism: Parallelism, tokens: number) =>
  stepModelOf(model, gpu, parallelism).seconds({
    ...IDLE_STEP,
    prefillTokens: tokens,
    prefillPairs: (tokens * (tokens + 1)) / 2,
    prefillKeys: tokens,
    prefillEnds: 1,
  });

describe('a pipeline', () => {
  it('splits the weights and leaves a lone request as slow as on one stage', () => {
    const [one, two] = [stepModelOf(dense, 'H200', { tp: 1 }), stepModelOf(dense, 'H200', { tp: 1, pp: 2 })];
    expect(weightBytes(two.deployment)).toBeCloseTo(weightBytes(one.deployment), -6);
    expect(two.decodeBase(1)).toBeGreaterThan(one.decodeBase(1));
    expect(two.decodeBase(1)).toBeLessThan(1.02 * one.decodeBase(1));
  });

  it('beats tensors where GPUs have no fast link, and loses where they have one and few requests are under way', () => {
    expect(rate(dense, 'L40S', { tp: 1, pp: 8 }, 256)).toBeGreaterThan(rate(dense, 'L40S', { tp: 8 }, 256));
    expect(rate(dense, 'H100-SXM', { tp: 1, pp: 4 }, 4)).toBeLessThan(0.5 * rate(dense, 'H100-SXM', { tp: 4 }, 4));
  });
});

describe('expert and data parallelism', () => {
  it('keep a latent cache once instead of on every GPU', () => {
    const tokens = (parallelism: Parallelism) => kvCapacityTokens(stepModelOf(moe, 'H200', parallelism).deployment);
    expect(tokens({ tp: 1, dp: 8, ep: true })).toBeGreaterThan(4 * tokens({ tp: 8 }));
  });

  it('serve more of a model with latent attention when many requests are under way', () => {
    expect(rate(moe, 'H200', { tp: 1, dp: 8, ep: true }, 1024)).toBeGreaterThan(rate(moe, 'H200', { tp: 8 }, 1024));
  });

  it('need experts, and GPUs that divide them', () => {
    expect(parallelismProblem(dense, { tp: 1, dp: 2, ep: true })).toMatch(/has no experts/);
    expect(parallelismProblem(moe, { tp: 3, ep: true })).toMatch(/3 GPUs do not divide the 256 experts/);
    expect(parallelismProblem(moe, { tp: 1, dp: 8, ep: true })).toBeUndefined();
  });

  it('the fullest of the GPUs with whole experts ends last', () => {
    const step = (parallelism: Parallelism) => stepModelOf(moe, 'H200', parallelism).linear(512);
    expect(step({ tp: 8, ep: true })).toBeGreaterThan(0.9 * step({ tp: 8 }));
  });
});

describe('sequence parallelism', () => {
  it('computes long prompts sooner with copies of the weights, and frees no memory', () => {
    const model = findModel(catalogue, 'Llama-3.1-8B-Instruct');
    expect(prompt(model, 'H100-SXM', { tp: 1, sp: 4 }, 32_768)).toBeLessThan(
      0.4 * prompt(model, 'H100-SXM', { tp: 1 }, 32_768),
    );
    const [one, four] = [stepModelOf(model, 'H100-SXM', { tp: 1 }), stepModelOf(model, 'H100-SXM', { tp: 1, sp: 4 })];
    expect(weightBytes(four.deployment)).toBe(4 * weightBytes(one.deployment));
    expect(freeBytes(four.deployment)).toBeCloseTo(4 * freeBytes(one.deployment), -3);
  });
});

describe('what is tried on a node', () => {
  const names = (list: readonly Parallelism[]) => list.map(parallelismText);

  it('is tensors for a dense model, and experts and data too for one with experts', () => {
    expect(names(parallelismsOf(dense, 8))).toEqual(['TP 1', 'TP 2', 'TP 4', 'TP 8']);
    expect(names(parallelismsOf(moe, 8))).toContain('TP 1 × DP 8 + EP');
    expect(names(parallelismsOf(moe, 8))).toContain('TP 8 + EP');
  });

  it('has pipelines where heads do not divide or links are slow, and sequences for long prompts', () => {
    expect(names(parallelismsOf(findModel(catalogue, 'llama-30b'), 8))).toContain('TP 4 × PP 2');
    expect(names(parallelismsOf(dense, 4, { fastLink: false }))).toContain('TP 1 × PP 4');
    expect(names(parallelismsOf(dense, 4, { longPrompts: true }))).toContain('TP 1 × SP 4');
  });

  it('never takes more GPUs than the node has', () => {
    for (const model of [dense, moe])
      for (const one of parallelismsOf(model, 8, { fastLink: false, longPrompts: true }))
        expect(gpusOf(one)).toBeLessThanOrEqual(8);
  });
});

describe('otela-plan simulate', () => {
  const simulate = (...more: string[]) =>
    otelaPlan(
      'simulate',
      '--model',
      'deepseek-ai/DeepSeek-V3',
      '--gpu',
      'H200',
      '--rate',
      '2',
      '--input',
      '1000',
      '--output',
      '100',
      ...more,
    );

  it('takes every kind of parallelism and says what does not work', async () => {
    expect((await simulate('--dp', '8', '--ep', '--json')).code).toBe(0);
    expect((await simulate('--tp', '4', '--pp', '2', '--json')).code).toBe(0);
    expect(await simulate('--tp', '1')).toMatchObject({ code: 3, log: expect.stringMatching(/does not fit 1 × H200/) });
    expect(await simulate('--tp', '3', '--ep')).toMatchObject({
      code: 2,
      log: expect.stringMatching(/do not divide the 256 experts/),
    });
  });
});

describe('a plan', () => {
  const asked = (parallelism?: Demand['parallelism']): Demand => ({
    model: moe,
    rate: 12,
    cv: 1,
    input: { kind: 'constant', mean: 1000 },
    output: { kind: 'constant', mean: 500 },
    weights: 'fp8',
    kv: 'bf16',
    ...(parallelism === undefined ? {} : { parallelism }),
  });
  const decided = (parallelism?: Demand['parallelism']) =>
    planByMilp([pool('h200', 'H200', 4, 8)], [asked(parallelism)], [], {
      catalogue,
      options: planOptions({ objective: 'throughput' }),
    });

  it('takes data and expert parallelism where the workload wants them tried and they serve more', async () => {
    const [tensors, all] = [await decided(), await decided(['data', 'expert', 'pipeline'])];
    expect(tensors.placements.every(({ spread }) => spread === undefined)).toBe(true);
    expect(all.servedShare).toBeGreaterThan(tensors.servedShare);
    expect(all.placements.map(({ spread, gpus }) => [spread && parallelismText(spread), gpus])).toContainEqual([
      'TP 1 × DP 8 + EP',
      8,
    ]);
    const settings = planOptions({ objective: 'throughput' });
    const prediction = predict(all, [pool('h200', 'H200', 4, 8)], [asked()], settings, 60);
    expect(prediction.models[0]?.result?.refused).toBe(0);
    expect(() => checkPlan(all, [pool('h200', 'H200', 4, 8)], [asked()], settings)).not.toThrow();
  });

  it('prints how a replica is spread', async () => {
    const file = (name: string, value: unknown) => {
      const path = join(folder, name);
      writeFileSync(path, JSON.stringify(value));
      return path;
    };
    const workload = {
      models: [{ model: moe.id, rate: 12, input: 1000, output: 500, parallelism: ['data', 'expert'] }],
    };
    const { code, out, log } = await otelaPlan(
      'plan',
      '--objective',
      'throughput',
      '--inventory',
      file('inventory.json', { pools: [{ gpu: 'H200', nodes: 4 }] }),
      '--workload',
      file('workload.json', workload),
    );
    expect([code, log]).toEqual([expect.any(Number), expect.not.stringMatching(/Error/)]);
    expect(out).toMatch(/8 × H200 each \(TP 1 × DP 8 \+ EP\)/);
  });
});

describe('a prefill and a decode engine that serve as one replica', () => {
  const model = findModel(catalogue, 'Llama-3.1-8B-Instruct');
  const step = stepModelOf(model, 'H100-SXM', { tp: 2 });
  const first = stepModelOf(model, 'H100-SXM', { tp: 1 });
  const lengths = { input: { kind: 'constant', mean: 4000 }, output: { kind: 'constant', mean: 100 } } as const;
  const of = (bytesPerSecond: number) => ({
    ...lengths,
    step,
    prefill: { step: first, bytesPerSecond },
    limits: DEFAULT_LIMITS,
    cv: 1,
  });

  it('takes the time of the prompt, of its keys and values on the link, and of the answer', () => {
    const ends: [number | undefined, number][] = [];
    const pair = new PairReplica(step, { step: first, bytesPerSecond: 1e9 }, DEFAULT_LIMITS, (_, at, end) =>
      ends.push([at, end]),
    );
    pair.push(0, 0, 4000, 100);
    pair.run(Number.POSITIVE_INFINITY);
    const alone = first.seconds({
      ...IDLE_STEP,
      prefillTokens: 4000,
      prefillPairs: (4000 * 4001) / 2,
      prefillKeys: 4000,
      prefillEnds: 1,
    });
    const crossing = (4000 * 131_072) / 1e9;
    expect(ends).toHaveLength(1);
    const [begun = 0, end = 0] = ends[0] ?? [];
    expect(begun).toBeCloseTo(alone + crossing + step.decodeBase(1), 9);
    expect(end).toBeGreaterThan(alone + crossing + 100 * step.decodeBase(1));
    expect(end).toBeLessThan(alone + crossing + 105 * step.decodeBase(1));
  });

  it('is as slow as its slowest part: a slow link ends its throughput', () => {
    const requestBytes = 4000 * 131_072;
    expect(profile(of(1e9), []).capacity).toBeCloseTo(1e9 / requestBytes, 1);
    const fast = profile(of(1e12), []).capacity;
    const prompts = profile({ ...of(1e12), output: { kind: 'constant', mean: 1 } }, []).capacity;
    expect(fast).toBeLessThanOrEqual(prompts * 1.001);
    expect(fast).toBeGreaterThan(0.9 * prompts);
  });

  it('is tried where a workload asks for it, with every parallelism on either side, and planned as it is simulated', async () => {
    const pools = [pool('h100', 'H100-SXM', 1, 8)];
    const workload: Demand[] = [
      {
        model,
        rate: 12,
        cv: 1,
        input: { kind: 'lognormal', mean: 3000, sd: 1000 },
        output: { kind: 'lognormal', mean: 300, sd: 100 },
        weights: 'bf16',
        kv: 'bf16',
        parallelism: ['disaggregated'],
      },
    ];
    const options = planOptions();
    const found = await planByMilp(pools, workload, [], { catalogue, options });
    const [placement] = found.placements;
    expect(placement?.spread?.prefill).toBeDefined();
    expect(placement?.gpus).toBe(gpusOf(placement?.spread ?? { tp: 0 }));
    expect(() => checkPlan(found, pools, workload, options)).not.toThrow();
    const { meanS } = predict(found, pools, workload, options, 300);
    expect(Math.abs(meanS / (found.meanLatencyS ?? 0) - 1)).toBeLessThan(0.08);
    expect(found.report?.proven).toBe(true);
    const plain = workload.map((demand): Demand => ({ ...demand, parallelism: [] }));
    const without = await planByMilp(pools, plain, [], { catalogue, options });
    expect(found.meanLatencyS).toBeLessThan(without.meanLatencyS ?? 0);
  });

  it('says what each side does, and fits one node', () => {
    expect(parallelismText({ tp: 4, prefill: { tp: 1 } })).toBe('prefill TP 1, decode TP 4');
    expect(pairsOf(model, [1, 2, 4], 4).map((pair) => gpusOf(pair))).toEqual([2, 3, 3, 4]);
    expect(parallelismProblem(model, { tp: 1, prefill: { tp: 1, prefill: { tp: 1 } } })).toContain(
      'cannot have a prefill engine',
    );
    const hybrid = catalogue.models.find(({ layers }) =>
      layers.some(({ mixers }) => mixers.some(({ kind }) => kind === 'recurrent')),
    );
    expect(hybrid).toBeDefined();
    if (hybrid !== undefined) expect(pairsOf(hybrid, [1], 8)).toEqual([]);
  });
});
