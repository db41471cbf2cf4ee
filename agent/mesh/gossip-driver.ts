import { EventQueue } from '../../shared/gossip/event-queue.ts';
import type { GossipAction, GossipEvent } from '../../shared/gossip/gossip-events.ts';
import type { GossipState } from '../../shared/gossip/index.ts';
import { waitClock } from '../wait-clock.ts';

interface MeshGossipDriverOptions {
  state: GossipState;
  act(action: Exclude<GossipAction, { type: 'timer' }>): void;
  random(): number;
}

/** Runs the gossip core on an agent. Owns the core's only timer. */
export class MeshGossipDriver {
  readonly #events: EventQueue;
  #timer: (() => void) | undefined;

  constructor({ state, act, random }: MeshGossipDriverOptions) {
    this.#events = new EventQueue({
      state,
      now: () => performance.now(),
      random,
      act: (action) => (action.type === 'timer' ? this.#setTimer(action.at) : act(action)),
    });
  }

  handle(event: GossipEvent): void {
    this.#events.handle(event);
  }

  #setTimer(at: number): void {
    this.#timer?.();
    this.#timer = waitClock.after(Math.max(0, at - performance.now()), () => this.handle({ type: 'timer' }));
  }

  close(): void {
    this.#events.close();
    this.#timer?.();
  }
}
