/** The prefill engines of one decode engine, and which of them computes the prompt of the next request. */
import type { PrefillTarget } from '../engine/engine-address.ts';
import type { EngineConnection } from './engine-call.ts';

/** Maximum size of all bodies that the pairs of one decode engine hold at the same time. */
const BODIES_MAX_BYTES = 256 * 1024 * 1024;
/** For this long after a failure, a prefill engine gets prompts only if all others failed, too. */
const AVOIDED_MS = 5_000;

/** The memory that the requests of all pairs of one decode engine share. */
export class BodyBudget {
  #heldBytes = 0;

  hold(bytes: number): boolean {
    if (this.#heldBytes + bytes > BODIES_MAX_BYTES) return false;
    this.#heldBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#heldBytes -= bytes;
  }
}

interface PairOptions {
  target: PrefillTarget;
  prefill: EngineConnection;
  log: (line: string) => void;
  budget?: BodyBudget;
  /** Milliseconds of a clock that is never set back. */
  now?: () => number;
}

/** State that the requests of one pair share. */
export class PairState {
  readonly target: PrefillTarget;
  readonly prefill: EngineConnection;
  readonly #log: (line: string) => void;
  readonly #budget: BodyBudget;
  readonly #now: () => number;
  #running = 0;
  /** When the prefill engine failed; undefined: it works. */
  #failedAt: number | undefined;

  constructor({ target, prefill, log, budget = new BodyBudget(), now = () => performance.now() }: PairOptions) {
    this.target = target;
    this.prefill = prefill;
    this.#log = log;
    this.#budget = budget;
    this.#now = now;
  }

  /** Number of this agent's prompts at the prefill engine. */
  get running(): number {
    return this.#running;
  }

  /** True if the prefill engine failed a moment ago. */
  get isAvoided(): boolean {
    return this.#failedAt !== undefined && this.#now() - this.#failedAt < AVOIDED_MS;
  }

  /** Counts a prompt. Returns a function to call when the prefill engine is done with it; further calls do nothing. */
  begin(): () => void {
    this.#running++;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#running--;
    };
  }

  /**
   * Reserves `bytes` of BODIES_MAX_BYTES. Returns false if less is left. After true, the caller must call `giveBack`.
   */
  hold(bytes: number): boolean {
    return this.#budget.hold(bytes);
  }

  giveBack(bytes: number): void {
    this.#budget.giveBack(bytes);
  }

  /** Reports a failure of the prefill engine. Only the first failure after a success is logged. */
  failed(why: string): void {
    if (this.#failedAt === undefined)
      this.#log(`prefill engine ${this.target.origin}: ${why}; other engines process the prompts instead`);
    this.#failedAt = this.#now();
  }

  works(): void {
    if (this.#failedAt !== undefined) this.#log(`prefill engine ${this.target.origin} works again`);
    this.#failedAt = undefined;
  }
}

export class PrefillEngines {
  readonly #pairs: readonly PairState[];
  /** The index at which the search begins, so that equals take turns. */
  #next = 0;

  /** @param pairs at least one */
  constructor(pairs: readonly PairState[]) {
    this.#pairs = pairs;
  }

  /** Returns the working pair with the fewest prompts of this agent at its prefill engine. */
  choose(): PairState | undefined {
    const turn = this.#pairs.map((_, n) => this.#pairs[(this.#next + n) % this.#pairs.length] as PairState);
    const working = turn.filter((pair) => !pair.isAvoided);
    const among = working.length > 0 ? working : turn;
    const best = among.reduce<PairState | undefined>(
      (least, pair) => (least === undefined || pair.running < least.running ? pair : least),
      undefined,
    );
    if (best !== undefined) this.#next = this.#pairs.indexOf(best) + 1;
    return best;
  }

  async close(): Promise<void> {
    await Promise.all(this.#pairs.map(({ prefill }) => prefill.close()));
  }
}
