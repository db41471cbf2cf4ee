import type { SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import type { PlacedReplica } from './placement.ts';

export type MemberRole = 'both' | 'prefill' | 'decode';

/** Which requests go to which replicas. */
export type Dispatch =
  /** `flow[group][kind]` of the plan: least work among the replicas to which the assignment gives the kind. */
  | { kind: 'flow'; flow: readonly (readonly number[])[] }
  /** Fewest requests, regardless of their kind. */
  | { kind: 'least-loaded' }
  | { kind: 'round-robin' };

/** A replica that is ready, or will be at `readyS`. */
export interface Member {
  placed: PlacedReplica;
  engine: SimulatedEngine;
  role: MemberRole;
  readyS: number;
  group: number;
  /** Seconds of assigned work that has not ended: the sum of 1 / rate of the kinds. */
  workS: number;
  /** `costS[kind]`: seconds of work of one request. */
  costS: readonly number[];
}

/** A replica outside the assignment takes a request only if it would begin earlier by this factor and these seconds. */
const SPILL = { factor: 1.5, s: 1 };

/** Chooses the replica for a request of a kind. `turn`: a number that grows with every choice. */
export function choose(ready: readonly Member[], dispatch: Dispatch, kind: number, turn: number): Member | undefined {
  switch (dispatch.kind) {
    case 'round-robin':
      return ready[turn % ready.length];
    case 'least-loaded':
      return least(ready, ({ engine }) => engine.load);
    case 'flow': {
      const given = (member: Member) => (dispatch.flow[member.group]?.[kind] ?? 0) > 1e-9;
      const work = (member: Member) => member.workS + (member.costS[kind] ?? 0);
      return least(ready, (member) => (given(member) ? work(member) : work(member) * SPILL.factor + SPILL.s));
    }
  }
}

export function least<T>(members: readonly T[], of: (member: T) => number): T | undefined {
  let [best, value]: [T | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const member of members) {
    const own = of(member);
    if (own < value) [best, value] = [member, own];
  }
  return best;
}
