import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type ProbedEngine, servedModel } from '../../scheduler/calibrate/completion-probe.ts';
import { fitCalibration, predicted } from '../../scheduler/calibrate/fit-calibration.ts';
import { type LoadObservation, observeLoad } from '../../scheduler/calibrate/load-observation.ts';
import { type Calibration, efficiencyOf } from '../../scheduler/catalogue/calibration.ts';
import { findGpu, findModel, readCalibration } from '../../scheduler/catalogue/catalogue.ts';
import type { ModelDeployment } from '../../scheduler/roofline/model-deployment.ts';
import { StepModel } from '../../scheduler/roofline/step-model.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { StandInEngine } from './support/mock-engine.ts';
import { catalogue, otelaPlan } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-calibrate-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const gpu = findGpu(catalogue, 'A100-80-SXM');
const deployment: ModelDeployment = {
  model: findModel(catalogue, 'Qwen3-8B'),
  gpu,
  tp: 1,
  weights: 'bf16',
  kv: 'bf16',
};
const base = catalogue.calibration;

/** A GPU and a host that differ from the catalog. */
const truth: Calibration = {
  ...base,
  gpus: { ...base.gpus, 'A100-80-SXM': { ...base.gpus.A100, compute: 0.6, memory: 0.9, attention_memory: 0.55 } },
  host: { ...base.host, step_ms: 2.5, sequence_ms: 0.03, request_ms: 0, hidden: 0 },
};
const law = new StepModel(deployment, truth);

async function observed(
  changes: Partial<Parameters<typeof observeLoad>[0]> = {},
): Promise<{ engine: StandInEngine; found: LoadObservation[] }> {
  const engine = new StandInEngine(law);
  const port: ProbedEngine = {
    url: 'http://engine',
    model: 'served',
    now: engine.now,
    fetch: engine.fetch,
    headers: {},
  };
  const found = await observeLoad({
    engine: port,
    random: seededRandom(1),
    contextTokens: 40_960,
    maxSequences: 128,
    limitMs: 1e9,
    log: () => {},
    ...changes,
  });
  return { engine, found };
}

describe('a load on an engine', () => {
  it('times steps and first tokens as they are, and repeats no prompt', async () => {
    const { engine, found } = await observed();
    expect(found.length).toBe(17);
    for (const one of found) expect(one.ms / predicted(law, one)).toBeCloseTo(1, 2);
    expect(engine.prompts.size).toBe(engine.requests);
  });

  it('ends in its time and leaves out what the engine or the model cannot do', async () => {
    const [whole, hurried] = [(await observed()).found, (await observed({ limitMs: 3_000 })).found];
    expect(hurried.length).toBeLessThan(whole.length);
    const small = (await observed({ maxSequences: 8, contextTokens: 2048 })).found;
    expect(Math.max(...small.map(({ sequences }) => sequences))).toBe(8);
    expect(Math.max(...small.map(({ prompt }) => prompt))).toBe(512);
  });

  it('refuses an engine that tells no usage, and one that fails', async () => {
    const silent: ProbedEngine = {
      url: 'http://engine',
      model: 'm',
      now: () => 0,
      headers: {},
      fetch: async () => new Response('data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n'),
    };
    const all = { random: seededRandom(1), contextTokens: 0, maxSequences: 1, limitMs: 1, log: () => {} };
    await expect(observeLoad({ engine: silent, ...all })).rejects.toThrow(/sent no usage/);
    const failing: ProbedEngine = { ...silent, fetch: async () => new Response('out of memory', { status: 500 }) };
    await expect(observeLoad({ engine: failing, ...all })).rejects.toThrow(/answered 500: out of memory/);
  });
});

it('does not keep a response without an end', async () => {
  let pieces = 0;
  const endless = () =>
    new Response(
      new ReadableStream({
        pull: (body) => {
          pieces += 1;
          if (pieces > 1_000) body.error(new Error('read too far'));
          else body.enqueue(new Uint8Array(1 << 16));
        },
      }),
    );
  const engine = { url: 'http://engine', now: () => 0, headers: {}, fetch: async () => endless() };
  await expect(servedModel(engine)).rejects.toThrow(/listed no model/);
  expect(pieces).toBeLessThan(100);
});

describe('a fit', () => {
  it('recovers the law of the engine, also where nothing was measured', async () => {
    const { found } = await observed();
    const fit = fitCalibration(base, deployment, found, 'stand-in 1', '2026-11-24');
    expect(fit.before).toBeGreaterThan(0.15);
    expect(fit.after).toBeLessThan(0.02);
    const efficiency = efficiencyOf(fit.calibration, gpu);
    expect(efficiency.compute / 0.6).toBeCloseTo(1, 1);
    expect(efficiency.attention_memory / 0.55).toBeCloseTo(1, 1);
    const mine = new StepModel(deployment, fit.calibration);
    for (const [sequences, context] of [
      [3, 9000],
      [100, 1500],
      [256, 300],
    ] as const) {
      const step = (of: StepModel) => of.decodeBase(sequences) + sequences * context * of.secondsPerContextToken;
      expect(step(mine) / step(law)).toBeGreaterThan(0.98);
      expect(step(mine) / step(law)).toBeLessThan(1.02);
    }
    expect(mine.linear(6000) / law.linear(6000)).toBeCloseTo(1, 1);
  });

  it('leaves the other GPUs as they were', async () => {
    const { found } = await observed();
    const { calibration } = fitCalibration(base, deployment, found, 'stand-in 1', '2026-11-24');
    expect(calibration.gpus.H100).toEqual(base.gpus.H100);
    expect(calibration.engine).toBe('stand-in 1');
  });

  it('wants enough phases', async () => {
    const { found } = await observed({ maxSequences: 1, contextTokens: 200 });
    expect(() => fitCalibration(base, deployment, found, 'x', 'y')).toThrow(/only \d phases ran, but at least 8/);
  });
});

describe('otela-plan calibrate', () => {
  it("asks the engine's port and writes a file that --calibration takes", async () => {
    const port = await new StandInEngine(law).listen();
    const out = join(folder, 'calibration.json');
    const { code, log } = await otelaPlan(
      'calibrate',
      '--url',
      `${port.url}/v1/`,
      '--model',
      'Qwen3-8B',
      '--gpu',
      'A100-80-SXM',
      '--max-sequences',
      '16',
      '--out',
      out,
    );
    await port.close();
    expect([code, log]).toEqual([0, expect.stringMatching(/vLLM 9\.9\.9 serves served on 1 × A100-80-SXM/)]);
    expect(readCalibration(out).engine).toBe('vLLM 9.9.9');
    expect(JSON.parse(readFileSync(out, 'utf8')).gpus['A100-80-SXM'].fitted).toMatch(
      /^calibrate, vLLM 9\.9\.9, \d{4}-/,
    );
    const simulated = await otelaPlan(
      'simulate',
      '--calibration',
      out,
      '--model',
      'Qwen3-8B',
      '--gpu',
      'A100-80-SXM',
      '--rate',
      '1',
      '--input',
      '100',
      '--output',
      '10',
    );
    expect(simulated.code).toBe(0);
  });

  it('says what is wrong with its use', async () => {
    expect(await otelaPlan('calibrate', '--gpu', 'H100-SXM')).toMatchObject({
      code: 2,
      log: expect.stringMatching(/--url is required/),
    });
    expect(await otelaPlan('calibrate', '--url', 'ftp://x', '--gpu', 'H100-SXM')).toMatchObject({ code: 2 });
    expect(await otelaPlan('calibrate', '--url', 'http://127.0.0.1:9', '--gpu', 'H100-SXM')).toMatchObject({
      code: 69,
    });
    const bad = join(folder, 'bad.json');
    writeFileSync(bad, '{}');
    expect(
      (await otelaPlan('calibrate', '--url', 'http://127.0.0.1:9', '--gpu', 'H100-SXM', '--calibration', bad)).code,
    ).toBe(2);
  });
});
