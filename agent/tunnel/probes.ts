import type { ProbeVerdict } from '../../shared/wire/frames.ts';

/** A gateway asks another agent and waits a second for it. */
const ANSWER_WITHIN_MS = 2000;

/** The mesh asks on suspicion only; more at once is a storm that no answer helps against. */
const OPEN_MAX = 64;

/** Questions about other sessions that this agent has put to one gateway. */
export class Probes {
  readonly #open = new Map<number, (verdict: ProbeVerdict) => void>();
  #nonce = 0;

  /** `unknown` where no answer comes. */
  ask(send: (nonce: number) => void): Promise<ProbeVerdict> {
    if (this.#open.size >= OPEN_MAX) return Promise.resolve('unknown');
    const nonce = ++this.#nonce;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.settle(nonce, 'unknown'), ANSWER_WITHIN_MS);
      this.#open.set(nonce, (verdict) => {
        clearTimeout(timer);
        resolve(verdict);
      });
      send(nonce);
    });
  }

  settle(nonce: number, verdict: ProbeVerdict): void {
    const answer = this.#open.get(nonce);
    this.#open.delete(nonce);
    answer?.(verdict);
  }

  /** The socket is gone, and what was asked over it. */
  abandon(): void {
    for (const nonce of [...this.#open.keys()]) this.settle(nonce, 'unknown');
  }
}
