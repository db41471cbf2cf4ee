import { type GossipState, step } from '../../shared/gossip/index.ts';
import type { Action, Event } from '../../shared/gossip/types.ts';

interface GossipDriverOptions {
  state: GossipState;
  /** Carries an action out. Events that this causes come after all actions of the same step. */
  act(action: Exclude<Action, { type: 'timer' }>): void;
  random(): number;
}

/** Turns events into steps of the gossip core, one after the other, and keeps its one timer. */
export class GossipDriver {
  readonly #options: GossipDriverOptions;
  /** Events that came while actions were carried out: a few for each action. */
  readonly #events: Event[] = [];
  #running = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: GossipDriverOptions) {
    this.#options = options;
  }

  handle(event: Event): void {
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

  #step(event: Event): void {
    for (const action of step(this.#options.state, event, performance.now(), this.#options.random)) {
      if (this.#closed) return;
      if (action.type === 'timer') this.#setTimer(action.at);
      else this.#options.act(action);
    }
  }

  #setTimer(at: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.handle({ type: 'timer' }), Math.max(0, at - performance.now()));
  }

  close(): void {
    this.#closed = true;
    this.#events.length = 0;
    clearTimeout(this.#timer);
  }
}
