/** A replica's model, pool and parallelism. */
import { parallelismText } from '../roofline/parallelism.ts';
import type { Placement } from './planning-problem.ts';

export type ReplicaPlace = Pick<Placement, 'model' | 'pool' | 'tp' | 'spread'>;

export const replicaPlace = ({ model, pool, tp, spread }: ReplicaPlace): ReplicaPlace => ({
  model,
  pool,
  tp,
  ...(spread === undefined ? {} : { spread }),
});

export const isSamePlace = (a: ReplicaPlace, b: ReplicaPlace): boolean =>
  a.model === b.model && a.pool === b.pool && spreadText(a) === spreadText(b);

export const spreadText = (place: ReplicaPlace): string => parallelismText(place.spread ?? { tp: place.tp });

/** Counts replicas by place. */
export function groupReplicas(replicas: readonly ReplicaPlace[]): Placement[] {
  const placements: Placement[] = [];
  for (const replica of replicas) {
    const known = placements.find((one) => isSamePlace(one, replica));
    if (known) known.replicas++;
    else placements.push({ ...replicaPlace(replica), replicas: 1 });
  }
  return placements;
}
