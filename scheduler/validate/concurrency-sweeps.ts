import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import { StepModel } from '../roofline/step-model.ts';
import { closedLoop } from '../simulator/closed-loop.ts';
import { DEFAULT_LIMITS } from '../simulator/engine-limits.ts';
import { type ReportSection, worst } from './accuracy-checks.ts';
import { signed } from './text-table.ts';

/** One point of a sweep over concurrent requests: Llama-3.1-8B-Instruct in 16 bits on one GPU. */
interface SweepPoint {
  gpu: string;
  engine: string;
  underWay: number;
  /** Tokens of each prompt. */
  input: number;
  /** Tokens of each response. */
  output: number;
  /**
   * The measured figure. tpot: median ms per token after the first. throughput: output tokens per second of all
   * clients.
   */
  figure: 'tpot' | 'throughput';
  measured: number;
  /** Why the point is shown but not counted. */
  reason?: string;
}

/**
 * H100: yobitelcomm.github.io/bench, "concurrency sweep" (2026-05-16). The page calls the lengths "chatbot-short"; 128
 * prompt tokens and 256 response tokens are our assumption. At 16 and 64 concurrent requests, the client or the engine
 * was at its limit, because the throughput with 64 was lower than with 16. A100: johnmusgrave.com, "vLLM
 * throughput-latency sweep on NVIDIA A100".
 */
const POINTS: readonly SweepPoint[] = [
  { gpu: 'H100-SXM', engine: 'vLLM 0.21', underWay: 1, input: 128, output: 256, figure: 'tpot', measured: 6.48 },
  { gpu: 'H100-SXM', engine: 'vLLM 0.21', underWay: 4, input: 128, output: 256, figure: 'tpot', measured: 6.59 },
  {
    gpu: 'A100-40-SXM',
    engine: 'vLLM 0.23',
    underWay: 1,
    input: 1024,
    output: 128,
    figure: 'throughput',
    measured: 75,
  },
  {
    gpu: 'A100-40-SXM',
    engine: 'vLLM 0.23',
    underWay: 8,
    input: 1024,
    output: 128,
    figure: 'throughput',
    measured: 495,
    reason: 'half of its prompts repeat those of earlier points, so they are in its prefix cache',
  },
];

/** Largest allowed error of the counted points, which were not used for fitting. */
const LIMIT = 0.12;

/** Compares two public sweeps of an 8B model, because `publishedSection` counts no run of that model. */
export function sweepSection(catalogue: HardwareCatalogue): ReportSection {
  const model = findModel(catalogue, 'Llama-3.1-8B-Instruct');
  const results = POINTS.map((point) => {
    const deployment = { model, gpu: findGpu(catalogue, point.gpu), tp: 1, weights: 'bf16', kv: 'bf16' } as const;
    const { ttftS, tpotS } = closedLoop({
      step: new StepModel(deployment, catalogue.calibration, DEFAULT_LIMITS),
      limits: DEFAULT_LIMITS,
      input: { kind: 'constant', mean: point.input },
      output: { kind: 'constant', mean: point.output },
      clients: point.underWay,
      rounds: 20,
      seed: 1,
    });
    const seconds = ttftS + (point.output - 1) * tpotS;
    const ours = point.figure === 'tpot' ? tpotS * 1e3 : (point.underWay * point.output) / seconds;
    return { ...point, ours, error: ours / point.measured - 1 };
  });
  const counted = results.filter(({ reason }) => reason === undefined);
  return {
    title: 'Llama-3.1-8B-Instruct, 16 bit: public sweeps over concurrent requests',
    header: ['GPU', 'engine', 'under way', 'figure', 'measured', 'ours', 'error', 'counted'],
    rows: results.map((r) => [
      r.gpu,
      r.engine,
      r.underWay,
      r.figure === 'tpot' ? 'ms per token' : 'tokens/s',
      r.measured.toFixed(2),
      r.ours.toFixed(2),
      signed(r.error),
      r.reason ?? 'yes',
    ]),
    checks: [
      {
        name: 'Llama-3.1-8B, two public sweeps',
        limit: LIMIT,
        found: worst(counted.map(({ error }) => error)),
        note: `largest of ${counted.length}, not fitted`,
      },
    ],
  };
}
