import type { Dispatch } from '../../scheduler/follow/dispatch.ts';
import type { History } from '../../scheduler/forecast/types.ts';
import type { DeploymentPlan } from './deployment-plan.ts';
import type { MemberRole } from './member.ts';
import type { PlacedReplica } from './placement.ts';

/** What a policy sees at the start of a slot: nothing later. */
export interface View {
  slot: number;
  nowS: number;
  /** Requests per kind in past slots. */
  history: History;
  running: readonly PlacedReplica[];
  plan: DeploymentPlan;
  /** Working GPUs. */
  gpus: number;
  underWay(): readonly RunningRequest[];
}

/** A request that has arrived and not ended. */
export interface RunningRequest {
  /** As judged on arrival. */
  kind: number;
  /** Seconds since its arrival. */
  ageS: number;
  /** Tokens of its prompt and of the response so far, and of only the response. */
  tokens: number;
  answered: number;
  /** True if a replica has the keys and values of all its tokens. */
  computed: boolean;
}

export interface OrchestrationDecision {
  plan: DeploymentPlan;
  dispatch: Dispatch;
  /** Seconds for which the GPUs of changing replicas do not serve. */
  darkS: number;
  /** Running requests of replicas that end: their keys and values move, or are recomputed elsewhere. */
  running: 'migrate' | 'recompute';
  /** Roles of the replicas in the order of the plan, for disaggregated prefill; absent: all do both. */
  roles?: readonly MemberRole[];
  /** Interval in seconds at which running requests move from the fullest to the emptiest replica (Llumnix). */
  rebalanceS?: number;
  /** The reason, for people. */
  note: string;
}

export interface Orchestrator {
  readonly name: string;
  /** `undefined`: no change. The first slot needs a decision. */
  decide(view: View): OrchestrationDecision | undefined;
}
