/** An agent decides in a moment; a gateway's operator waits for this long before being told that nothing is known. */
const ANSWER_MS = 10_000;

/** Orders to one agent that wait for their answer. */
const WAITING_MAX = 16;

/** Orders to the agent of one tunnel. */
export class Deploys {
  readonly #waiting = new Map<number, (json: string | null) => void>();
  #sequence = 0;

  /** `put` sends the order. Resolves with null when nothing came back. */
  send(put: (sequence: number) => void): Promise<string | null> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve(null);
    const sequence = ++this.#sequence;
    return new Promise((resolve) => {
      const done = (json: string | null) => {
        clearTimeout(timer);
        this.#waiting.delete(sequence);
        resolve(json);
      };
      const timer = setTimeout(() => done(null), ANSWER_MS);
      this.#waiting.set(sequence, done);
      put(sequence);
    });
  }

  answered(sequence: number, json: string): void {
    this.#waiting.get(sequence)?.(json);
  }

  /** The tunnel is gone: whether the order arrived is not known. */
  abandon(): void {
    for (const done of [...this.#waiting.values()]) done(null);
  }
}
