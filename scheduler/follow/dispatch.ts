/** Chooses the replica for each request of a simulation. */

/** Which requests go to which replicas. */
export type Dispatch =
  /** `flow[group][kind]` of the plan: least work among the replicas to which the assignment gives the kind. */
  | { kind: 'flow'; flow: readonly (readonly number[])[] }
  /** Fewest requests, regardless of their kind. */
  | { kind: 'least-loaded' }
  | { kind: 'round-robin' };

/** A replica that is ready. */
export interface ReadyReplica {
  /** `load`: requests that run or wait. */
  engine: { readonly load: number };
  group: number;
  /** Seconds of assigned work that has not ended: the sum of 1 / rate of the kinds. */
  workS: number;
  /** `costS[kind]`: seconds of work of one request. */
  costS: readonly number[];
}

/** A replica outside the assignment takes a request only if it would begin earlier by this factor and these seconds. */
const SPILL = { factor: 1.5, s: 1 };

/** Chooses the replica for a request of a kind. `turn`: a number that grows with every choice. */
export function choose<T extends ReadyReplica>(
  ready: readonly T[],
  dispatch: Dispatch,
  kind: number,
  turn: number,
): T | undefined {
  switch (dispatch.kind) {
    case 'round-robin':
      return ready[turn % ready.length];
    case 'least-loaded':
      return least(ready, ({ engine }) => engine.load);
    case 'flow': {
      const given = (replica: T) => (dispatch.flow[replica.group]?.[kind] ?? 0) > 1e-9;
      const work = (replica: T) => replica.workS + (replica.costS[kind] ?? 0);
      return least(ready, (replica) => (given(replica) ? work(replica) : work(replica) * SPILL.factor + SPILL.s));
    }
  }
}

export function least<T>(all: readonly T[], of: (one: T) => number): T | undefined {
  let [best, value]: [T | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const one of all) {
    const own = of(one);
    if (own < value) [best, value] = [one, own];
  }
  return best;
}
