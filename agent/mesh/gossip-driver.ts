import type { GossipState } from '../../shared/gossip/index.ts';
import { StepQueue } from '../../shared/gossip/step-queue.ts';
import type { Action, Event } from '../../shared/gossip/types.ts';

interface GossipDriverOptions {
  state: GossipState;
  act(action: Exclude<Action, { type: 'timer' }>): void;
  random(): number;
}

/** Runs the gossip core at an agent, and keeps its one timer. */
export class GossipDriver {
  readonly #steps: StepQueue;
  #timer: NodeJS.Timeout | undefined;

  constructor({ state, act, random }: GossipDriverOptions) {
    this.#steps = new StepQueue({
      state,
      now: () => performance.now(),
      random,
      act: (action) => (action.type === 'timer' ? this.#setTimer(action.at) : act(action)),
    });
  }

  handle(event: Event): void {
    this.#steps.handle(event);
  }

  #setTimer(at: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.handle({ type: 'timer' }), Math.max(0, at - performance.now()));
  }

  close(): void {
    this.#steps.close();
    clearTimeout(this.#timer);
  }
}
