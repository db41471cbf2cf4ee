import type { NodeIndex } from '../../shared/routing/nodes.ts';

/** The registry as this agent knows it, its own node included. */
export interface ReadableRegistry {
  readonly index: NodeIndex;
  /** Changes with everything that is shown. */
  readonly version: number;
}
