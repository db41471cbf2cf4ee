import type { DeploymentDecider } from '../deploy/deployment-decider.ts';
import type { OrderReceiver } from '../deploy/order-receiver.ts';
import type { Engine } from '../engine/engine.ts';
import type { ModelControl } from '../engine/model-control.ts';
import type { RequestService } from '../ingress/request-service.ts';
import type { AgentWeights } from './agent-weights.ts';
import type { Sessions } from './session/sessions.ts';

/** Runs lines of batches on this node. */
export interface BatchService {
  /** Takes no new leases. Returns the current ones when their lines have ended, or when `signal` is aborted. */
  drain(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/**
 * The parts of an agent that are created after its start, or replaced while it runs. An agent that ends early has only
 * some of these parts.
 */
export interface AgentParts {
  engine?: Engine;
  /** Loads and unloads models of the running engine. */
  models?: ModelControl;
  sessions?: Sessions;
  /** Receives orders of gateways. */
  orders?: OrderReceiver;
  /** Decides about deployments, if this agent accepts any. */
  deployments?: DeploymentDecider;
  /** Handles requests of other agents and of this agent's ingress. */
  requests?: RequestService;
  /** Weights that this node stores. */
  weights?: AgentWeights;
  /** Lines of batches. */
  batches?: BatchService;
}
