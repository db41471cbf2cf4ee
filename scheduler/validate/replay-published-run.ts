import type { Calibration } from '../catalogue/calibration.ts';
import { findGpu, findModel, type HardwareCatalogue } from '../catalogue/catalogue.ts';
import { deploymentProblem } from '../roofline/model-deployment.ts';
import { StepModel } from '../roofline/step-model.ts';
import { closedLoop } from '../simulator/closed-loop.ts';
import { DEFAULT_LIMITS } from '../simulator/engine-limits.ts';
import type { LengthDistribution } from '../simulator/length-distribution.ts';
import type { PublishedRun } from './measured-data.ts';

/**
 * Lengths are drawn between this share of the stated ones and all of it, as in InferenceMAX; NVIDIA's runs have the
 * exact lengths.
 */
const LENGTHS_FROM = 0.8;
/** Number of requests of each client; InferenceMAX sends ten. */
const ROUNDS = 6;

function lengthsOf(run: PublishedRun, tokens: number): LengthDistribution {
  if (run.by !== 'InferenceMAX') return { kind: 'constant', mean: tokens };
  return { kind: 'uniform', low: Math.round(LENGTHS_FROM * tokens), high: tokens };
}

export interface ReplayedRun {
  run: PublishedRun;
  ttftMs: number;
  tpotMs: number;
  /** Output tokens per second of all clients, measured (from published TTFT and TPOT) and simulated (`ours`). */
  throughput: { measured: number; ours: number };
}

/** Simulates the load of a published run. Undefined if the replica would not start. */
export function replay(
  run: PublishedRun,
  catalogue: HardwareCatalogue,
  calibration: Calibration = catalogue.calibration,
): ReplayedRun | undefined {
  const model = findModel(catalogue, run.model);
  const kv = run.weights === model.storage.weights ? model.storage.kv : 'bf16';
  const deployment = { model, gpu: findGpu(catalogue, run.gpu), tp: run.tp, ep: run.ep, weights: run.weights, kv };
  const limits = { ...DEFAULT_LIMITS, maxSequences: Math.max(DEFAULT_LIMITS.maxSequences, run.concurrency) };
  if (deploymentProblem(deployment, limits.memoryFraction) !== undefined) return undefined;
  const step = new StepModel(deployment, calibration, limits);
  const { ttftS, tpotS } = closedLoop({
    step,
    limits,
    input: lengthsOf(run, run.input),
    output: lengthsOf(run, run.output),
    clients: run.concurrency,
    rounds: ROUNDS,
    seed: 1,
  });
  const [ttftMs, tpotMs] = [ttftS * 1e3, tpotS * 1e3];
  const tokens = run.output * (run.by === 'InferenceMAX' ? (1 + LENGTHS_FROM) / 2 : 1);
  const rate = (first: number, next: number) => (1e3 * run.concurrency * tokens) / (first + (tokens - 1) * next);
  return { run, ttftMs, tpotMs, throughput: { measured: rate(run.ttftMs, run.tpotMs), ours: rate(ttftMs, tpotMs) } };
}
