import type { NodeIndex } from '../../shared/routing/node-index.ts';

/** The registry in this agent's view, including its own node. */
export interface AgentRegistryView {
  readonly index: NodeIndex;
  /** Grows with every change of the data that is shown. */
  readonly version: number;
}
