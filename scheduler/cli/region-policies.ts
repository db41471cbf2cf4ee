/** The policies of `otela-plan regions`: the one of its flags, and those that `--challenger` names. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { learnedPolicy } from '../regions/learned/learned-policy.ts';
import { readPolicyParameters } from '../regions/learned/policy-file.ts';
import { CHALLENGERS_MAX, ChampionChallenger, type Contender } from '../regions/live/champion-challenger.ts';
import { ChosenForecast } from '../regions/live/chosen-forecast.ts';
import type { OnlineForecast } from '../regions/live/count-forecast.ts';
import { LivePlanner, type LivePlannerOptions } from '../regions/live/region-planner.ts';

/** The quadratic program needs a positive penalty. */
export const SMOOTHNESS_MIN = 1e-3;
const SMOOTHNESS_MAX = 1e6;

const POLICY = 'policy=';
/** The gateway's bound. */
const NAME_CHARS_MAX = 64;

type Weights = Pick<LivePlannerOptions, 'slotS' | 'secondsPerUsd' | 'smoothness'>;

/** @throws UsageError for a policy that does not exist, or twice the same; SchedulerError for a broken file */
export function policiesFrom(
  weights: Weights,
  forecast: string | undefined,
  challengers: readonly string[],
): ChampionChallenger {
  if (challengers.length > CHALLENGERS_MAX)
    throw new UsageError(`--challenger: at most ${CHALLENGERS_MAX} policies are allowed`);
  if (new Set(challengers).size < challengers.length) throw new UsageError('--challenger: a policy is named twice');
  const options = { ...weights, forecast: forecastFrom('--forecast', forecast, weights.slotS) };
  return new ChampionChallenger({
    ...weights,
    champion: contender('default', `default, forecast=${forecast ?? 'smoothing'}`, options),
    challengers: challengers.map((text) =>
      contender(nameOf(text), identityOf(text), { ...options, ...changedBy(text, weights.slotS) }),
    ),
  });
}

function contender(name: string, identity: string, options: LivePlannerOptions): Contender {
  const planner = new LivePlanner(options);
  return { name, identity, plan: (views, facts) => planner.plan(views, facts) };
}

/** A policy file may change under its name. */
function identityOf(text: string): string {
  if (!text.startsWith(POLICY)) return text;
  const parameters = readPolicyParameters(text.slice(POLICY.length));
  return `${POLICY}${createHash('sha256').update(new Uint8Array(parameters.buffer)).digest('hex')}`;
}

/** The gateway shows names to people: paths of this machine are not for them. */
const nameOf = (text: string) =>
  (text.startsWith(POLICY) ? `${POLICY}${basename(text.slice(POLICY.length))}` : text).slice(0, NAME_CHARS_MAX);

function changedBy(text: string, slotS: number): Partial<LivePlannerOptions> {
  const [key = '', ...rest] = text.split('=');
  const value = rest.join('=');
  if (key === 'forecast') return { forecast: forecastFrom('--challenger', value, slotS) };
  if (key === 'policy') return { learned: learnedPolicy(readPolicyParameters(value)) };
  if (key !== 'smoothness')
    throw new UsageError(
      `--challenger ${text}: expected forecast=best, forecast=smoothing, smoothness=S or policy=FILE`,
    );
  const smoothness = value === '' ? Number.NaN : Number(value);
  if (!(smoothness >= SMOOTHNESS_MIN && smoothness <= SMOOTHNESS_MAX))
    throw new UsageError(`--challenger ${text}: expected a smoothness from ${SMOOTHNESS_MIN} to ${SMOOTHNESS_MAX}`);
  return { smoothness };
}

function forecastFrom(flag: string, name: string | undefined, slotS: number): (() => OnlineForecast) | undefined {
  if (name === undefined || name === 'smoothing') return undefined;
  if (name !== 'best') throw new UsageError(`${flag}: the forecast ${name} is neither smoothing nor best`);
  return () => new ChosenForecast(slotS);
}
