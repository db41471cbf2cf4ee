import type { GossipState } from '../../shared/gossip/index.ts';
import { StepQueue } from '../../shared/gossip/step-queue.ts';
import type { Action, Event } from '../../shared/gossip/types.ts';
import { patience } from '../patience.ts';

interface GossipDriverOptions {
  state: GossipState;
  act(action: Exclude<Action, { type: 'timer' }>): void;
  random(): number;
}

/** Runs the gossip core at an agent, and keeps its one timer. */
export class GossipDriver {
  readonly #steps: StepQueue;
  #timer: (() => void) | undefined;

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
    this.#timer?.();
    this.#timer = patience.after(Math.max(0, at - performance.now()), () => this.handle({ type: 'timer' }));
  }

  close(): void {
    this.#steps.close();
    this.#timer?.();
  }
}
