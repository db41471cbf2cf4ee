import type { Calibration } from '../catalogue/calibration.ts';
import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { Precision } from '../catalogue/precision.ts';
import { type EngineMode, IDLE_STEP, StepModel } from '../roofline/step-model.ts';
import { PAPER_LIMITS } from '../simulator/engine-limits.ts';
import { seededRandom } from '../simulator/random.ts';
import { drawRequests } from '../simulator/request-arrivals.ts';
import { simulate } from '../simulator/simulate.ts';
import { type ReportSection, worst } from './accuracy-checks.ts';
import { type MeasuredDrain, measuredDrains, measuredLlama13b } from './measured-data.ts';
import { minimise } from './nelder-mead.ts';
import { signed } from './text-table.ts';

function stepFor(
  catalogue: HardwareCatalogue,
  model: string,
  gpu: string,
  tp: number,
  calibration = catalogue.calibration,
  engine?: EngineMode,
): StepModel {
  const bf16: Precision = 'bf16';
  return new StepModel(
    { model: findModel(catalogue, model), gpu: findGpu(catalogue, gpu), tp, weights: bf16, kv: bf16 },
    calibration,
    engine,
  );
}

interface Point {
  name: string;
  kind: 'decode' | 'prefill';
  measured: number;
  ours(step: StepModel): number;
  /** True if the point counts. */
  firm: boolean;
}

function llamaPoints(): Point[] {
  const { decode, prefill } = measuredLlama13b();
  const decodes = decode.batch.map((batch, i): Point => {
    // Mean context over the steps of a response: the prompt and, on average, half of the response.
    const context = batch * (decode.input + decode.output / 2);
    return {
      name: `batch ${batch}`,
      kind: 'decode',
      measured: decode.ms_per_token[i] ?? Number.NaN,
      ours: (step) => (step.decodeBase(batch) + context * step.secondsPerContextToken) * 1e3,
      firm: batch <= 64,
    };
  });
  const prefills = prefill.input.map(
    (n, i): Point => ({
      name: `prompt ${n}`,
      kind: 'prefill',
      measured: prefill.ms[i] ?? Number.NaN,
      ours: (step) =>
        step.host.request_ms +
        step.seconds({
          ...IDLE_STEP,
          prefillTokens: n,
          prefillPairs: (n * (n + 1)) / 2,
          prefillKeys: n,
          prefillEnds: 1,
        }) *
          1e3,
      firm: true,
    }),
  );
  return [...decodes, ...prefills];
}

/**
 * Fits the host times, and the share of its clock that the GPU keeps: four parameters. Every second point is for
 * fitting; errors are reported for the others.
 */
function fitHost(catalogue: HardwareCatalogue, points: readonly Point[]): StepModel {
  const make = ([step_ms = 0, sequence_ms = 0, request_ms = 0, sustained = 0]: readonly number[]): Calibration => ({
    ...catalogue.calibration,
    gpus: { ...catalogue.calibration.gpus, 'H100-NVL': { sustained } },
    host: { step_ms, sequence_ms, request_ms, hidden: 0, fitted: '' },
  });
  const error = (values: readonly number[]) => {
    const step = stepFor(catalogue, 'Llama-2-13b-hf', 'H100-NVL', 1, make(values));
    return points.reduce((sum, point) => sum + (point.ours(step) / point.measured - 1) ** 2, 0);
  };
  return stepFor(catalogue, 'Llama-2-13b-hf', 'H100-NVL', 1, make(minimise(error, [0.4, 0.045, 10, 0.8], 300)));
}

export function llamaSection(catalogue: HardwareCatalogue): ReportSection {
  const points = llamaPoints();
  const shipped = stepFor(catalogue, 'Llama-2-13b-hf', 'H100-NVL', 1);
  const fitted = fitHost(
    catalogue,
    points.filter((point, i) => i % 2 === 0 && point.firm),
  );
  const rows: (string | number)[][] = [];
  const errors = { decode: [] as number[], prefill: [] as number[] };
  const other = { decode: [] as number[], prefill: [] as number[] };
  points.forEach((point, i) => {
    const error = point.ours(shipped) / point.measured - 1;
    const half = point.ours(fitted) / point.measured - 1;
    if (point.firm) errors[point.kind].push(error);
    if (point.firm && i % 2 === 1) other[point.kind].push(half);
    const used = point.firm ? (i % 2 === 0 ? `${signed(half)} (fitted)` : signed(half)) : `${signed(half)} (not firm)`;
    rows.push([point.kind, point.name, point.measured.toFixed(2), point.ours(shipped).toFixed(2), signed(error), used]);
  });
  return {
    title: 'Llama-2-13B on H100 NVL: decode ms/token (1 in, 1,024 out), prefill ms (batch 1)',
    header: ['phase', 'case', 'measured', 'ours', 'error as shipped', 'error, host fitted on every second point'],
    rows,
    checks: [
      {
        name: 'decode, batches 2-64, as shipped',
        limit: 0.08,
        found: worst(errors.decode),
        note: 'largest of 6; host fitted on these',
      },
      { name: 'decode, points not fitted', limit: 0.08, found: worst(other.decode), note: 'batches 4, 16, 64' },
      {
        name: 'prefill 64-2,048, as shipped',
        limit: 0.08,
        found: worst(errors.prefill),
        note: 'largest of 6; host fitted on these',
      },
      { name: 'prefill, points not fitted', limit: 0.08, found: worst(other.prefill), note: 'prompts 128, 512, 2,048' },
    ],
  };
}

type Drained = MeasuredDrain & { ours: number; tokens: number; wallS: number };

/**
 * True if the measurements of this model were used for fitting: `sustained` and `hidden` were fitted on the four
 * measurements of two models. Those of the third model are only compared.
 */
export const isFitted = (model: string) => !model.startsWith('CodeLlama');

export function drain(catalogue: HardwareCatalogue, measured: MeasuredDrain): Drained {
  const step = stepFor(catalogue, measured.model, measured.gpu, measured.tp, catalogue.calibration, PAPER_LIMITS);
  const drawing = {
    arrivals: { kind: 'poisson', rate: measured.rate },
    input: { kind: 'normal', ...measured.input, min: 5 },
    output: { kind: 'normal', ...measured.output, min: 5 },
  } as const;
  const requests = drawRequests(drawing, { durationS: measured.durationS }, seededRandom(1));
  const started = performance.now();
  const groups = [{ step, replicas: 1, weight: 1 }];
  const result = simulate({ model: measured.model, groups, requests, limits: PAPER_LIMITS, policy: 'random', seed: 1 });
  return {
    ...measured,
    ours: result.durationS,
    tokens: result.simulatedTokens,
    wallS: (performance.now() - started) / 1e3,
  };
}

/** Ratios of the same workload on A100 and on GH200. */
function ratiosOf(results: readonly Drained[]) {
  return results
    .filter(({ gpu }) => gpu.startsWith('A100'))
    .flatMap((slow) => {
      const fast = results.find(({ model, gpu }) => model === slow.model && gpu.startsWith('GH200'));
      if (fast === undefined) return [];
      const [measured, ours] = [slow.seconds / fast.seconds, slow.ours / fast.ours];
      return [{ model: slow.model, measured, ours, error: ours / measured - 1 }];
    });
}

/** Compares whole workloads on one replica each, because they decide placements. */
export function drainSection(catalogue: HardwareCatalogue): ReportSection {
  const results = measuredDrains().map((measured) => drain(catalogue, measured));
  const ratios = ratiosOf(results);
  const yesNo = (model: string) => (isFitted(model) ? 'yes' : 'no');
  return {
    title: 'End to end: seconds for 300 s of the paper’s requests on one replica (vLLM, measured by OpenTela)',
    header: [
      'model',
      'GPU',
      'TP',
      'measured s',
      'ours s',
      'error',
      'fitted here',
      'simulated tokens / wall s',
      'times real time',
    ],
    rows: [
      ...results.map((r) => {
        const speed = [`${(r.tokens / r.wallS / 1e6).toFixed(0)} M`, (r.ours / r.wallS).toFixed(0)];
        const error = signed(r.ours / r.seconds - 1);
        return [r.model, r.gpu, r.tp, r.seconds.toFixed(0), r.ours.toFixed(0), error, yesNo(r.model), ...speed];
      }),
      ...ratios.map((r) => [
        r.model,
        'A100 / GH200',
        '',
        r.measured.toFixed(2),
        r.ours.toFixed(2),
        signed(r.error),
        yesNo(r.model),
        '',
        '',
      ]),
    ],
    checks: [
      ...results.map((r) => ({
        name: `end to end, ${r.model} on ${r.gpu}`,
        limit: 0.1,
        found: Math.abs(r.ours / r.seconds - 1),
        note: isFitted(r.model) ? 'two parameters from 4 of these 6' : 'not fitted',
      })),
      ...ratios.map((r) => ({
        name: `A100 against GH200, ${r.model}`,
        limit: 0.06,
        found: Math.abs(r.error),
        note: 'relative between two GPU types',
      })),
      {
        name: 'simulated tokens per wall second, slowest',
        limit: undefined,
        found: Math.min(...results.map((r) => r.tokens / r.wallS)),
        note: 'target ≥ 1,000,000',
      },
    ],
  };
}
