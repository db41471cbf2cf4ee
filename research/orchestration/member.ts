import type { ReadyReplica } from '../../scheduler/follow/dispatch.ts';
import type { SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import type { PlacedReplica } from './placement.ts';

export type MemberRole = 'both' | 'prefill' | 'decode';

/** A replica that is ready, or will be at `readyS`. */
export interface Member extends ReadyReplica {
  placed: PlacedReplica;
  engine: SimulatedEngine;
  role: MemberRole;
  readyS: number;
}
