import type { Verdict } from '../../shared/gossip/types.ts';

/** Answers of gateways that are waited for; the core asks on suspicion only. */
const OPEN_MAX = 64;

/** Whether sessions answer, asked of gateways: what they cannot tell, or are not asked for now, is unknown. Never rejects. */
export class RelayQuestions {
  readonly #askRelay: (session: string) => Promise<Verdict>;
  #open = 0;

  constructor(askRelay: (session: string) => Promise<Verdict>) {
    this.#askRelay = askRelay;
  }

  async ask(session: string): Promise<Verdict> {
    if (this.#open >= OPEN_MAX) return 'unknown';
    this.#open++;
    try {
      return await this.#askRelay(session);
    } catch {
      return 'unknown';
    } finally {
      this.#open--;
    }
  }
}
