import { errorText } from '../../shared/text/error-text.ts';
import { Backoff } from '../../shared/timing/backoff.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';

const SEED_MIN_MS = 500;
const SEED_MAX_MS = 30_000;

/** Maximum number of addresses on one command line. */
export const SEEDS_MAX = 32;

interface SeedsOptions {
  /** `host:port` of agents that may know others. */
  addresses: readonly string[];
  /** Resolves when a channel to the address is open. Rejects if it cannot be opened. */
  dial(address: string): Promise<unknown>;
  /** True if this agent has a channel. */
  connected(): boolean;
  random(): number;
  log(line: string): void;
}

interface Seed {
  address: string;
  backoff: Backoff;
  reached: boolean;
  failureLogged: boolean;
  timer: NodeJS.Timeout | undefined;
}

/**
 * Tries the configured addresses of peers without end: each until it was reached once, and again whenever this agent
 * has no channel. The sessions at the addresses are not known before they answer.
 */
export class Seeds {
  readonly #options: SeedsOptions;
  readonly #seeds: Seed[];
  #closed = false;

  constructor(options: SeedsOptions) {
    this.#options = options;
    this.#seeds = options.addresses.slice(0, SEEDS_MAX).map((address) => ({
      address,
      backoff: new Backoff({ minMs: SEED_MIN_MS, maxMs: SEED_MAX_MS }, options.random),
      reached: false,
      failureLogged: false,
      timer: undefined,
    }));
  }

  open(): void {
    for (const seed of this.#seeds) neverRejects(this.#try(seed));
  }

  async #try(seed: Seed): Promise<void> {
    seed.timer = undefined;
    if (seed.reached && this.#options.connected()) return this.#retry(seed);
    try {
      await this.#options.dial(seed.address);
      seed.reached = true;
      seed.failureLogged = false;
      seed.backoff.reset();
    } catch (error) {
      if (!seed.failureLogged) this.#options.log(`peer ${seed.address}: ${errorText(error)}`);
      seed.failureLogged = true;
    }
    this.#retry(seed);
  }

  #retry(seed: Seed): void {
    if (this.#closed) return;
    if (seed.reached && this.#options.connected()) seed.backoff.reset();
    seed.timer = setTimeout(() => neverRejects(this.#try(seed)), seed.backoff.next());
  }

  close(): void {
    this.#closed = true;
    for (const { timer } of this.#seeds) clearTimeout(timer);
  }
}
