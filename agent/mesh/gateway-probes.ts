import type { PathVerdict } from '../../shared/gossip/types.ts';

/** Answers of gateways that are waited for; the core asks on suspicion only. */
const OPEN_MAX = 64;

/** Whether sessions answer, asked of gateways: what they cannot tell, or are not asked for now, is unknown. Never rejects. */
export class GatewayProbes {
  readonly #askRelay: (session: string) => Promise<PathVerdict>;
  #open = 0;

  constructor(askRelay: (session: string) => Promise<PathVerdict>) {
    this.#askRelay = askRelay;
  }

  async ask(session: string): Promise<PathVerdict> {
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
