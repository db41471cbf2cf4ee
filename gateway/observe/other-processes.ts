/** Counters and timelines of all processes: each process has its own observe object. */
import { type MetricState, MetricStore } from '../../shared/metrics/metric-store.ts';
import type { Env } from '../env.ts';
import { answerOf } from './health-routes.ts';
import { FAMILIES } from './metric-families.ts';
import { OBSERVE_NAME } from './metrics-reporter.ts';
import type { RequestTimeline } from './request-timeline.ts';
import type { RecordOwner } from './timeline-store.ts';

/** The observe object of another process. */
export interface OtherObserver {
  /** Number of the process. */
  readonly process: number;
  read(): Promise<MetricState>;
  stories(id: string, owner?: RecordOwner): Promise<RequestTimeline[]>;
}

/** Maximum wait for another process. A process that is paused does not answer, and keeps its link for seconds. */
const ANSWER_MS = 2_000;

/** Maximum processes of which the last counts are kept. A new data directory gives a process another number. */
const KEPT_MAX = 1_000;

/**
 * The last counts of the other processes, by number; the newest last, and at most KEPT_MAX. They count while a process
 * does not answer: otherwise the sums would fall, and Prometheus would take that for a reset.
 */
const lastCounts = { all: new Map<number, MetricState>(), port: new Map<number, MetricState>() };

/** Counts and gauges of all processes. `port`: of this one and those that share its port. */
export async function countedOf(env: Env, of: 'all' | 'port'): Promise<MetricState> {
  const others = env.PROCESSES?.observers(of) ?? [];
  const [own, ...answers] = await Promise.all([
    env.OBSERVE.getByName(OBSERVE_NAME).read(),
    ...others.map((one) => soon(() => one.read())),
  ]);
  const sum = new MetricStore();
  sum.merge(own);
  const answered = new Set<number>();
  for (const [at, { process }] of others.entries()) {
    const state = answers[at];
    if (state === undefined) continue;
    answered.add(process);
    lastCounts[of].delete(process);
    lastCounts[of].set(process, withoutGauges(state));
    sum.merge(state);
  }
  for (const oldest of lastCounts[of].keys()) {
    if (lastCounts[of].size <= KEPT_MAX) break;
    lastCounts[of].delete(oldest);
  }
  for (const [process, counts] of lastCounts[of]) if (!answered.has(process)) sum.merge(counts);
  return sum.state();
}

/** Timelines of a request at all processes. `isWhole`: each process has answered. */
export async function storiesOf(
  env: Env,
  id: string,
  owner?: RecordOwner,
): Promise<{ stories: RequestTimeline[]; isWhole: boolean }> {
  const others = env.PROCESSES?.observers('all') ?? [];
  const [own, ...answers] = await Promise.all([
    env.OBSERVE.getByName(OBSERVE_NAME).stories(id, owner),
    ...others.map((one) => soon(() => one.stories(id, owner))),
  ]);
  const stories = [own, ...answers].flatMap((some) => some ?? []).sort((a, b) => b.at - a.at);
  return { stories, isWhole: answers.every((some) => some !== undefined) };
}

/** Undefined if the process does not answer within ANSWER_MS. */
async function soon<T>(ask: () => Promise<T>): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => late.resolve(undefined), ANSWER_MS);
  const answer = await Promise.race([answerOf(ask), late.promise]);
  clearTimeout(timer);
  return answer;
}

const GAUGES: ReadonlySet<string> = new Set(FAMILIES.filter(({ kind }) => kind === 'gauge').map(({ name }) => name));

function withoutGauges(state: MetricState): MetricState {
  return Object.fromEntries(Object.entries(state).filter(([name]) => !GAUGES.has(name)));
}
