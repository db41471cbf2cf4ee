import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import type { PrefillSide } from '../simulator/prefill-decode-pair.ts';
import { LOAD_LEVELS, profile } from '../simulator/replica-profile.ts';
import type { Demand } from './planning-problem.ts';

type Profile = ReturnType<typeof profile>;

/** Maximum number of profiles that are remembered. A plan of 100 models and 12 kinds of GPU needs about 3,000. */
const REMEMBERED_MAX = 4_000;
/**
 * Profiles are not cached if a distribution has more samples than this, because the key of the cache contains all of
 * them.
 */
const SAMPLES_MAX = 1_000;

const known = new Map<string, Profile>();
const calibrationIds = new WeakMap<object, number>();
let calibrations = 0;

/**
 * Simulates one replica and caches the result, which does not depend on the requested rate. So a controller that plans
 * every half minute simulates each replica once, and so do plans that differ only in their rates.
 */
export function replicaProfile(
  step: StepModel,
  demand: Demand,
  limits: SimulatedEngineLimits,
  calibration: object,
  wantLatency: boolean,
  prefill?: PrefillSide,
): Profile {
  const of = {
    step,
    ...(prefill === undefined ? {} : { prefill }),
    limits,
    input: demand.input,
    output: demand.output,
    cv: demand.cv,
  };
  const levels = wantLatency ? LOAD_LEVELS : [];
  const key = keyOf(of, calibration);
  const remembered = key === undefined ? undefined : known.get(key);
  if (remembered !== undefined && (!wantLatency || remembered.points.length > 0)) return remembered;
  const found = profile(of, levels, remembered?.capacity);
  if (key === undefined) return found;
  if (known.size >= REMEMBERED_MAX) known.delete(known.keys().next().value ?? '');
  known.set(key, found);
  return found;
}

function keyOf(
  { step, prefill, limits, input, output, cv }: Parameters<typeof profile>[0],
  calibration: object,
): string | undefined {
  const many = [input, output].some((one) => one.kind === 'samples' && one.values.length > SAMPLES_MAX);
  if (many) return undefined;
  const which = calibrationIds.get(calibration) ?? ++calibrations;
  calibrationIds.set(calibration, which);
  return JSON.stringify([which, step.deployment, prefill?.step.deployment, limits, input, output, cv]);
}
