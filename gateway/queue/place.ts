/** How a Worker asks for a turn, and what it is told. Both ends are this program. */
import type { Place } from '../../shared/routing/fair-queue.ts';

export interface PlaceRequest extends Place {
  /** Nodes that were busy. */
  busy: string[];
  /** How long it may wait from now on. */
  waitMs: number;
  /** It had a turn, which came to nothing. */
  back: boolean;
  /** How many may wait for this model. */
  places: number;
}

export type PlaceAnswer =
  /** Try now. `session`: the node that has a place. */
  | { kind: 'turn'; session?: string }
  | { kind: 'full'; retryAfterMs: number }
  /** It waited as long as it may. */
  | { kind: 'late' };
