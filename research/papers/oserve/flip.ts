import { candidatePlans } from '../../orchestration/exhaustive.ts';
import { forecastRequests } from '../../orchestration/rehearse.ts';
import { planLoad, type Setup, SLOT_S, setupOf } from './setups.ts';

/** Minutes of each mix, and of the history, which has the first one. */
const MINUTES = 10;
const PAST_MINUTES = 20;
/** Load of each mix on the deployment that suits it best: no deployment can serve both. */
const LOAD = 0.85;
/** More than the requests of one mix. */
const REQUESTS_MAX = 1_000_000;

/**
 * A mix that flips: ten minutes of Azure's short prompts with short responses, then ten of its longest ones. The
 * lengths are Azure's. The rest is synthetic: Poisson arrivals, as many as the best deployment for each mix serves at
 * the same load.
 */
export function flipSetup(): Setup & { mixes: number[][] } {
  const azure = setupOf({ model: 'facebook/opt-30b', gpus: 16, trace: 'azure', span: 2 });
  const { table, demand } = azure;
  const plans = candidatePlans(table, table.site.gpus);
  const longest = table.kinds.reduce(
    (most, { moments }, j) => (moments.output.mean > (table.kinds[most]?.moments.output.mean ?? 0) ? j : most),
    0,
  );
  const short = (j: number) => (table.kinds[j]?.moments.output.mean ?? 0) < SHORT_ANSWER;
  const mixes = [short, (j: number) => j === longest].map((has) => {
    const mix = demand.map((rate, j) => (has(j) ? rate : 0));
    const load = Math.min(...plans.map((plan) => planLoad(table, plan, mix)));
    return mix.map((rate) => (rate * LOAD) / load);
  });
  const parts = mixes.map((mix, i) => forecastRequests(table, mix, MINUTES * 60, 1 + i, REQUESTS_MAX));
  const joined = (of: (part: (typeof parts)[number]) => ArrayLike<number>, step = 0) =>
    parts.flatMap((part, i) => Array.from(of(part), (value) => value + i * step));
  return {
    ...azure,
    name: 'OPT-30B on 16 H100, a mix that flips',
    requests: {
      count: parts.reduce((sum, { requests }) => sum + requests.count, 0),
      arrival: Float64Array.from(joined(({ requests }) => requests.arrival, MINUTES * 60)),
      input: Int32Array.from(joined(({ requests }) => requests.input)),
      output: Int32Array.from(joined(({ requests }) => requests.output)),
    },
    kinds: Int32Array.from(joined(({ kinds }) => kinds)),
    // Made requests have no senders, so a gateway could learn nothing.
    judged: Int32Array.from(joined(({ kinds }) => kinds)),
    lately: undefined,
    before: {
      ...azure.before,
      counts: (mixes[0] ?? []).map((rate) => new Array<number>(PAST_MINUTES).fill(rate * SLOT_S)),
    },
    demand: mixes[0] ?? [],
    mixes,
  };
}

/** Tokens; Azure's kinds have 15 to 60, 90 to 120, and 350 to 400. */
const SHORT_ANSWER = 60;
