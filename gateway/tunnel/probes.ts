import type { ProbeVerdict } from '../../shared/wire/frames.ts';

/** An agent that is there answers in a round trip; its asker gives up after 600 ms (relayMs of shared/gossip), and a word that comes later says nothing. */
const ANSWER_MS = 400;

/** Probes that wait for an answer. */
const WAITING_MAX = 32;

/** What one agent may ask of others, per second: a cluster that falls apart asks for each of its members once. */
const ASKS_PER_S = 20;

/** Questions to the agent of one tunnel, and the pace at which that agent may have us ask others. */
export class Probes {
  readonly #waiting = new Map<number, (verdict: ProbeVerdict) => void>();
  #nonce = 0;
  #second = 0;
  #asked = 0;

  /** `put` sends the question. Resolves with `silent` when nothing came back in time. */
  ask(put: (nonce: number) => void): Promise<ProbeVerdict> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve('unknown');
    const nonce = ++this.#nonce;
    return new Promise((resolve) => {
      const done = (verdict: ProbeVerdict) => {
        clearTimeout(timer);
        this.#waiting.delete(nonce);
        resolve(verdict);
      };
      const timer = setTimeout(() => done('silent'), ANSWER_MS);
      this.#waiting.set(nonce, done);
      put(nonce);
    });
  }

  answered(nonce: number, verdict: ProbeVerdict): void {
    this.#waiting.get(nonce)?.(verdict);
  }

  /** The tunnel is gone: whether the agent would have answered is not known. */
  abandon(): void {
    for (const done of [...this.#waiting.values()]) done('unknown');
  }

  mayAsk(now: number): boolean {
    const second = Math.floor(now / 1000);
    if (second !== this.#second) this.#asked = 0;
    this.#second = second;
    return ++this.#asked <= ASKS_PER_S;
  }
}
