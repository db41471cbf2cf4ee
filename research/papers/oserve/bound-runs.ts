/** The least P99 that any sequence of deployments of a small cluster can reach, by trying all of them. */
import * as z from 'zod';
import type { Dispatch } from '../../../scheduler/follow/dispatch.ts';
import { type DeploymentPlan, planText } from '../../orchestration/deployment-plan.ts';
import { allPlans } from '../../orchestration/exhaustive.ts';
import type { Orchestrator } from '../../orchestration/orchestrator.ts';
import { planAssignment } from '../../orchestration/plan-assignment.ts';
import { bestStatic, raceFor, runOurs, staticOf } from './policies.ts';
import { type Setup, SLOT_S, setupOf, type TraceName } from './setups.ts';

export const GPUS = 4;
const SPANS: readonly [TraceName, number][] = [
  ['azure', 1],
  ['azure', 3],
  ['azure', 5],
  ['servegen', 1],
  ['servegen', 3],
  ['servegen', 5],
];
/** Deployments of one span, one after another; between them all replicas may change. Three take ten times as long. */
const PARTS = 2;

/** A deployment and how its requests are sent. */
interface Option {
  plan: DeploymentPlan;
  dispatch: Dispatch;
  name: string;
}

/** Every plan, with the least loaded replica and, if replicas differ, with kinds assigned for the span's true demand. */
export function optionsOf({ table: rates, demand }: Pick<Setup, 'table' | 'demand'>): Option[] {
  return allPlans(rates, rates.site.gpus).flatMap((plan): Option[] => {
    const name = planText(plan);
    const plain: Option = { plan, dispatch: { kind: 'least-loaded' }, name };
    if (plan.length < 2) return [plain];
    const { flow } = planAssignment(rates, plan, demand);
    return [plain, { plan, dispatch: { kind: 'flow', flow }, name: `${name}, kinds` }];
  });
}

/** Changes without a pause, and running requests move. */
function inTurn(options: readonly Option[], slotsEach: number): Orchestrator {
  return {
    name: 'in turn',
    decide({ slot }) {
      const option = options[slot / slotsEach];
      if (option === undefined) return undefined;
      return { plan: option.plan, dispatch: option.dispatch, darkS: 0, running: 'migrate', note: option.name };
    },
  };
}

export const boundSchema = z.object({
  name: z.string(),
  tried: z.number(),
  /** P99, seconds. */
  staticS: z.number(),
  hindsightS: z.number(),
  oursS: z.number(),
  leastS: z.number(),
  least: z.string(),
});
export type Bound = z.infer<typeof boundSchema>;

export interface BoundOf {
  trace: TraceName;
  span: number;
  /** Deployments of the span, one after another. */
  parts: number;
}

export const boundsOf = (quick: boolean): BoundOf[] =>
  (quick ? SPANS.slice(0, 1) : SPANS).map(([trace, span]) => ({ trace, span, parts: PARTS }));

/** Tries all sequences of `parts` options; the true kind of each request is known. */
export function boundOf({ trace, span, parts }: BoundOf): Bound {
  const setup = setupOf({ model: 'facebook/opt-30b', gpus: GPUS, trace, span });
  const options = optionsOf(setup);
  const slotsEach = Math.ceil((setup.requests.arrival.at(-1) ?? 0) / SLOT_S / parts);
  const race = raceFor({ ...setup, judged: setup.kinds });
  let [leastS, least, tried] = [Number.POSITIVE_INFINITY, '', 0];
  const attempt = (chosen: readonly Option[]) => {
    tried++;
    const result = race(inTurn(chosen, slotsEach), leastS);
    if (result === undefined || result.latency.p99 >= leastS) return;
    leastS = result.latency.p99;
    least = [...new Set(chosen.map(({ name }) => name))].join(' → ');
  };
  // One deployment throughout first: a good P99 cuts the other runs short.
  for (const option of options) attempt(new Array<Option>(parts).fill(option));
  for (let index = 0; index < options.length ** parts; index++) {
    const chosen = Array.from(
      { length: parts },
      (_, part) => options[Math.floor(index / options.length ** part) % options.length],
    );
    if (new Set(chosen).size > 1) attempt(chosen.flatMap((option) => option ?? []));
  }
  return {
    name: setup.name,
    tried,
    staticS: staticOf(setup).latency.p99,
    hindsightS: bestStatic(setup).latency.p99,
    oursS: runOurs(setup).latency.p99,
    leastS,
    least,
  };
}
