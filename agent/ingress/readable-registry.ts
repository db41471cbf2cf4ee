import type { NodeIndex } from '../../shared/routing/node-index.ts';

/** The registry as this agent knows it, including its own node. */
export interface ReadableRegistry {
  readonly index: NodeIndex;
  /** Changes with all data that is shown. */
  readonly version: number;
}
