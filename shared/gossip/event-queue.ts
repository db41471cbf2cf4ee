import type { GossipAction, GossipEvent } from './gossip-events.ts';
import type { GossipState } from './index.ts';

interface EventQueueOptions {
  state: Pick<GossipState, 'step'>;
  /** Returns the milliseconds of a monotonic clock. */
  now(): number;
  random(): number;
  /**
   * Carries an action out. Events that the action causes are handled after all actions of the same step.
   * @param now the time of the step
   */
  act(action: GossipAction, now: number): void;
}

/**
 * Turns events into steps of the gossip core. The steps run one after the other, because the core is not re-entrant.
 */
export class EventQueue {
  readonly #options: EventQueueOptions;
  /** Events that arrived while actions were carried out: a few per action. */
  readonly #events: GossipEvent[] = [];
  #running = false;
  #closed = false;

  constructor(options: EventQueueOptions) {
    this.#options = options;
  }

  handle(event: GossipEvent): void {
    if (this.#closed) return;
    this.#events.push(event);
    if (this.#running) return;
    this.#running = true;
    try {
      for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) this.#step(next);
    } finally {
      this.#running = false;
    }
  }

  #step(event: GossipEvent): void {
    const { state, random, act } = this.#options;
    const now = this.#options.now();
    for (const action of state.step(event, now, random)) {
      if (this.#closed) return;
      act(action, now);
    }
  }

  /** From now on no event is handled and no action is carried out. */
  close(): void {
    this.#closed = true;
    this.#events.length = 0;
  }
}
