import { type Calibration, efficiencyOf } from '../catalogue/calibration.ts';
import { SchedulerError } from '../errors.ts';
import type { ModelDeployment } from '../roofline/model-deployment.ts';
import { IDLE_STEP, StepModel } from '../roofline/step-model.ts';
import { minimise } from '../validate/nelder-mead.ts';
import type { LoadObservation } from './load-observation.ts';

/** Minimum number of observations: fewer do not determine six parameters. */
const OBSERVATIONS_MIN = 8;
/**
 * Weight of the penalty for changing parameters, relative to the squared relative errors. The penalty of a parameter is
 * log(new / old) squared. Because of the penalty, a parameter stays near its old value if the load reveals little about
 * it.
 */
const HOLD = 1e-4;
const STEPS = 1500;

interface Fit {
  calibration: Calibration;
  /** For each observation the milliseconds that the model predicts, after the fit (`ms`) and before it. */
  points: { observation: LoadObservation; ms: number; before: number }[];
  /** Mean relative error before the fit. */
  before: number;
  /** Mean relative error after the fit. */
  after: number;
}

/** Milliseconds that the model predicts for an observation. */
export function predicted(step: StepModel, { kind, sequences, prompt, context }: LoadObservation): number {
  if (kind === 'decode') {
    const seen = Math.min(context, step.window);
    const attention = context * step.secondsPerContextToken + seen * step.secondsPerWindowToken;
    return (step.decodeBase(sequences) + sequences * attention) * 1e3;
  }
  const windowed = step.window > 0 ? Math.min((prompt * (prompt + 1)) / 2, prompt * step.window) : 0;
  const work = {
    ...IDLE_STEP,
    prefillTokens: prompt,
    prefillPairs: (prompt * (prompt + 1)) / 2,
    prefillWindowPairs: windowed,
  };
  return step.host.request_ms + step.seconds({ ...work, prefillKeys: prompt, prefillEnds: 1 }) * 1e3;
}

/**
 * Fits six parameters by least squares of relative errors: the shares of peak arithmetic and bandwidth that products
 * reach, the share of bandwidth that attention reaches, and the host's time per step, per sequence and per request. If
 * the load reveals nothing about a parameter, it keeps its value. With one model, the fit can determine only the sum of
 * two times: the time to read the weights, and the host's time per step.
 */
export function fitCalibration(
  base: Calibration,
  deployment: ModelDeployment,
  observations: readonly LoadObservation[],
  engine: string,
  date: string,
): Fit {
  if (observations.length < OBSERVATIONS_MIN)
    throw new SchedulerError(
      'bad_input',
      `only ${observations.length} phases ran, but at least ${OBSERVATIONS_MIN} are required: allow more time, context or sequences`,
    );
  const start = startOf(base, deployment);
  const make = (values: readonly number[]) => calibrationOf(base, deployment, values, engine, date);
  const error = (step: StepModel) => observations.map((one) => predicted(step, one) / one.ms - 1);
  const value = (values: readonly number[]) => {
    if (values.some((one, i) => one > (LIMITS[i] ?? Number.POSITIVE_INFINITY))) return Number.MAX_VALUE;
    const held = values.reduce((sum, one, i) => sum + Math.log(one / (start[i] ?? 1)) ** 2, 0);
    return error(new StepModel(deployment, make(values))).reduce((sum, one) => sum + one * one, 0) + HOLD * held;
  };
  // The search is repeated from its result, because its simplex may have become flat before it reached the minimum.
  const found = minimise(value, minimise(value, start, STEPS), STEPS);
  const [before, after] = [base, make(found)].map((one) => new StepModel(deployment, one));
  if (before === undefined || after === undefined) throw new Error('two models were made');
  const mean = (step: StepModel) => error(step).reduce((sum, one) => sum + Math.abs(one), 0) / observations.length;
  return {
    calibration: make(found),
    points: observations.map((observation) => ({
      observation,
      ms: predicted(after, observation),
      before: predicted(before, observation),
    })),
    before: mean(before),
    after: mean(after),
  };
}

/**
 * Upper bounds of the parameters, in the order of `startOf`: three shares of peak, then milliseconds that no engine
 * exceeds.
 */
const LIMITS = [1.2, 1.2, 1.2, 200, 20, 5000];

function startOf(base: Calibration, { gpu, weights }: ModelDeployment): number[] {
  const efficiency = efficiencyOf(base, gpu);
  const product = efficiency.products?.[weights] ?? efficiency;
  const { step_ms, sequence_ms, request_ms } = base.host;
  const positive = [step_ms, sequence_ms, request_ms].map((one, i) => Math.max(one, [0.05, 0.002, 1][i] ?? 0));
  return [product.compute, product.memory, efficiency.attention_memory, ...positive];
}

function calibrationOf(
  base: Calibration,
  { gpu, weights }: ModelDeployment,
  values: readonly number[],
  engine: string,
  date: string,
): Calibration {
  const [compute = 1, memory = 1, attention_memory = 1, step_ms = 0, sequence_ms = 0, request_ms = 0] = values;
  const efficiency = efficiencyOf(base, gpu);
  const { p, launch_us } = efficiency.products?.[weights] ?? efficiency;
  const fitted = `calibrate, ${engine}, ${date}`;
  const products = { ...efficiency.products, [weights]: { compute, memory, p, launch_us } };
  const plain = weights === 'bf16' ? { compute, memory } : {};
  return {
    ...base,
    engine,
    gpus: {
      ...base.gpus,
      [gpu.id]: { ...base.gpus[gpu.class], ...base.gpus[gpu.id], ...plain, products, attention_memory, fitted },
    },
    host: { ...base.host, step_ms, sequence_ms, request_ms, hidden: 0, fitted },
  };
}
