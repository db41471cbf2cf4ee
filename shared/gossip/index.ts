/**
 * The gossip core: `createGossip`, then `step` for each event, in order. Pure and synchronous: time and randomness are
 * arguments, and all effects are returned as actions.
 */

import { ActionBatch } from './action-batch.ts';
import type { GossipContext } from './gossip-context.ts';
import { GossipCore } from './gossip-core.ts';
import type { GossipAction, GossipEvent, GossipMemory, GossipSetup, Liveness } from './gossip-events.ts';
import { DEFAULT_OPTIONS } from './gossip-options.ts';
import { TimerQueue } from './timer-queue.ts';

export {
  type AgentFailureDetection,
  agentMembershipSchema,
  type FailureDetectionSettings,
  MEMBERSHIP_DEFAULTS,
  membershipSchema,
  type TunableOptions,
  tunedOptions,
} from './failure-detection-settings.ts';
export type {
  GossipAction,
  GossipEvent,
  GossipMemory,
  GossipNotice,
  GossipSelf,
  GossipSetup,
  HangUpReason,
  Liveness,
  PathVerdict,
  PeerId,
} from './gossip-events.ts';
export type { GossipOptions } from './gossip-options.ts';
export { DEFAULT_OPTIONS } from './gossip-options.ts';

export class GossipState {
  /** Only for the functions of this file. Drivers must not use it. */
  readonly core: GossipCore;
  readonly #context: GossipContext;
  #timerAt: number | undefined;

  constructor(setup: GossipSetup) {
    const { self, replica, crypto, signer, options, memory } = setup;
    this.#context = {
      self,
      me: self.kind === 'agent' ? self.session : self.id,
      replica,
      crypto,
      signer,
      options: { ...DEFAULT_OPTIONS, ...options },
      timerQueue: new TimerQueue(),
      out: new ActionBatch(),
      rings: new Map(),
      now: Number.NEGATIVE_INFINITY,
      rng: () => 0,
    };
    this.core = new GossipCore(this.#context, memory);
  }

  step(event: GossipEvent, now: number, rng: () => number): GossipAction[] {
    const context = this.#context;
    context.now = Math.max(context.now, now);
    context.rng = rng;
    this.core.handle(event);
    this.core.settle();
    const actions = context.out.take();
    const next = context.timerQueue.next();
    if (next !== undefined && (next !== this.#timerAt || event.type === 'timer')) {
      this.#timerAt = next;
      actions.push({ type: 'timer', at: next });
    }
    return actions;
  }
}

export function createGossip(setup: GossipSetup): GossipState {
  return new GossipState(setup);
}

/** Updates `state` in place. Returns the actions to carry out. */
export function step(state: GossipState, event: GossipEvent, now: number, rng: () => number): GossipAction[] {
  return state.step(event, now, rng);
}

export function livenessOf(state: GossipState, session: string): Liveness {
  return state.core.liveness(session);
}

/**
 * The state that `createGossip` needs to continue after a gateway's object has hibernated. Structured-cloneable. Call
 * it after a step that returned `evict`, `liveness` or `notice`.
 */
export function saveState(state: GossipState): GossipMemory {
  return state.core.remember();
}
