import { parallelismText } from '../roofline/parallelism.ts';
import type { Placement } from '../solver/problem.ts';
import type { ControllerState } from './state.ts';

/** One thing to do, and why. */
export type Action =
  | (ReplicaPlace & { kind: 'start'; why: string })
  | (ReplicaPlace & { kind: 'stop'; job: string; why: string });

/** After so many jobs of a placement that ended unasked in a row, a person has to look (`--retry`). */
const FAILURES_MAX = 3;

export interface Differences {
  actions: Action[];
  /** What is wanted and not done, and why. */
  held: string[];
}

/** Replicas that are alike. */
export type ReplicaPlace = Pick<Placement, 'model' | 'pool' | 'tp' | 'spread'>;

export const replicaPlace = ({ model, pool, tp, spread }: ReplicaPlace): ReplicaPlace => ({
  model,
  pool,
  tp,
  ...(spread === undefined ? {} : { spread }),
});
export const isSamePlace = (a: ReplicaPlace, b: ReplicaPlace) =>
  a.model === b.model && a.pool === b.pool && spreadText(a) === spreadText(b);
export const spreadText = (place: ReplicaPlace): string => parallelismText(place.spread ?? { tp: place.tp });
const words = (place: ReplicaPlace) => `${place.model} (${spreadText(place)} on ${place.pool})`;

/**
 * From what runs to what is wanted. Stops come before starts, since they make room. Without `reclaim` nothing is stopped: what runs
 * already is left alone.
 */
export function differences(wanted: readonly Placement[], state: ControllerState, reclaim: boolean): Differences {
  const places: ReplicaPlace[] = [];
  for (const one of [...wanted, ...state.jobs]) if (!places.some((known) => isSamePlace(known, one))) places.push(one);
  const stops: Action[] = [];
  const starts: Action[] = [];
  const held: string[] = [];
  for (const place of places) {
    const jobs = state.jobs.filter((job) => isSamePlace(job, place));
    const want = wanted.filter((one) => isSamePlace(one, place)).reduce((sum, { replicas }) => sum + replicas, 0);
    if (jobs.length > want) {
      if (!reclaim) held.push(`${words(place)}: ${jobs.length} run, ${want} would do; left alone without --reclaim`);
      // Those that wait lose nothing, then the newest.
      const order = [...jobs].sort(
        (a, b) => Number(a.seen) - Number(b.seen) || b.started_at.localeCompare(a.started_at),
      );
      const surplus = reclaim ? order.slice(0, jobs.length - want) : [];
      for (const { id } of surplus)
        stops.push({
          kind: 'stop',
          job: id,
          ...replicaPlace(place),
          why: `the plan has ${want} of ${words(place)}, ${jobs.length} run`,
        });
    }
    const failed = state.failures.find((one) => isSamePlace(one, place))?.count ?? 0;
    if (want > jobs.length && failed >= FAILURES_MAX) {
      held.push(
        `${words(place)}: it failed or ended unasked ${failed} times in a row; not started again without --retry`,
      );
      continue;
    }
    for (let n = jobs.length; n < want; n++)
      starts.push({ kind: 'start', ...replicaPlace(place), why: `the plan has ${want} of ${words(place)}, ${n} run` });
  }
  return { actions: [...stops, ...starts], held };
}
