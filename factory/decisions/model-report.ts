/** Builds the report about a model, with an estimate of when it could answer. */
import type { ModelReport, ModelState } from '../../shared/factory/factory-exchange.ts';
import type { ClusterView, PlacedModel } from './factory-world.ts';
import type { CountedJob, JobCensus } from './job-census.ts';
import { backOffsOf } from './launch-back-off.ts';
import type { Memory } from './persisted-state.ts';
import type { WantedReplicas } from './wanted-replicas.ts';

/** Assumed wait in a scheduler's queue if no wait was measured. Schedulers start jobs about every half minute. */
const WAIT_UNKNOWN_MS = 30_000;
/** Minimum estimate, also if the expected time has passed. */
const ESTIMATE_MIN_MS = 5_000;

interface ReportedModel {
  census: JobCensus;
  memory: Memory;
  clusters: ReadonlyMap<string, ClusterView>;
  wanted: WantedReplicas | undefined;
  held: string | undefined;
  now: number;
}

export function buildModelReport(
  { model, places }: PlacedModel,
  { census, memory, wanted, held, now }: ReportedModel,
): ModelReport {
  const jobs = census.jobs.filter((job) => job.model === model.id);
  const coming = census.coming.filter((one) => one.model === model.id).reduce((sum, { count }) => sum + count, 0);
  const pending = jobs.filter(({ state }) => state === 'pending').length + coming;
  const ready = jobs.filter(({ state, asked }) => state === 'ready' && asked === undefined).length;
  const serving = jobs.filter(({ asked, state }) => asked === undefined && state !== 'draining');
  const back_offs = places.map((place) => backOffsOf(memory, model.id, place).starts);
  const rests = places.length > 0 && back_offs.every((one) => one?.resting === true && now < one.until);
  const best = bestOf(serving);
  const state = stateOf(best, coming, rests);
  const load = (context: string | undefined) => memory.loads[context ?? ''] ?? places[0]?.recipe.load ?? 0;
  const wait = (place: string) => memory.waits[place] ?? WAIT_UNKNOWN_MS;
  const [first] = places;
  const cold = first === undefined ? undefined : wait(`${first.cluster.id}/${first.pool.name}`) + load(first.context);
  const estimate = rests
    ? undefined
    : best === undefined
      ? cold
      : remaining(best, load(best.context), wait(`${best.cluster}/${best.pool ?? ''}`), now);
  const reason = rests ? back_offs.find((one) => one !== undefined)?.reason : reasonOf(best, wanted, held);
  return {
    id: model.id,
    state,
    min: model.min,
    max: model.max,
    pending,
    running: jobs.filter(({ state: one }) => one !== 'pending').length,
    ready,
    ...(estimate === undefined ? {} : { estimate_ms: Math.round(estimate) }),
    ...(best?.node?.progress === undefined ? {} : { progress: best.node.progress }),
    ...(reason === undefined ? {} : { reason: reason.slice(0, 300) }),
    ...(model.wake === undefined ? {} : { wake: { projects: [...model.wake.projects], keys: [...model.wake.keys] } }),
  };
}

const ORDER = ['ready', 'loading', 'starting', 'pending', 'draining'];
const bestOf = (jobs: readonly CountedJob[]) =>
  [...jobs].sort(
    (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (a.began_at ?? a.seen_at) - (b.began_at ?? b.seen_at),
  )[0];

function stateOf(best: CountedJob | undefined, coming: number, rests: boolean): ModelState {
  switch (best?.state) {
    case 'ready':
    case 'loading':
    case 'starting':
      return best.state;
    case 'pending':
      return 'queued';
    default:
      return rests ? 'resting' : coming > 0 ? 'queued' : 'cold';
  }
}

function remaining(job: CountedJob, load: number, wait: number, now: number): number {
  if (job.state === 'ready') return 0;
  if (job.began_at === undefined) return Math.max(ESTIMATE_MIN_MS, wait - (now - job.seen_at)) + load;
  return Math.max(ESTIMATE_MIN_MS, load - (now - job.began_at));
}

function reasonOf(
  best: CountedJob | undefined,
  wanted: WantedReplicas | undefined,
  held: string | undefined,
): string | undefined {
  if (best?.state === 'ready') return held === undefined ? wanted?.why : `${wanted?.why ?? ''}; ${held}`;
  if (best === undefined) return held ?? wanted?.why;
  const where = `job ${best.id} on ${best.cluster}${best.pool === undefined ? '' : `/${best.pool}`}`;
  if (best.state === 'pending')
    return `${where} waits${best.reason === undefined || best.reason === '' ? '' : ` (${best.reason})`}`;
  const progress = best.node?.progress;
  return `${where} ${best.state === 'loading' ? `loads${progress === undefined ? '' : ` ${Math.round(progress * 100)} %`}` : 'starts'}`;
}
