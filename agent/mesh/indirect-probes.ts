import type { PathVerdict } from '../../shared/gossip/gossip-events.ts';

/** Maximum number of pending questions. The gossip core asks only if it suspects a session. */
const OPEN_MAX = 64;

/**
 * Asks gateways whether other sessions answer them. The verdict is `unknown` if the gateways do not know, or cannot be
 * asked now. Never rejects.
 */
export class IndirectProbes {
  readonly #askGateway: (session: string) => Promise<PathVerdict>;
  #open = 0;

  constructor(askGateway: (session: string) => Promise<PathVerdict>) {
    this.#askGateway = askGateway;
  }

  async ask(session: string): Promise<PathVerdict> {
    if (this.#open >= OPEN_MAX) return 'unknown';
    this.#open++;
    try {
      return await this.#askGateway(session);
    } catch {
      return 'unknown';
    } finally {
      this.#open--;
    }
  }
}
