import type { UsedTokens } from './token-estimator.ts';

/** Attempts that are remembered: those of minutes, in which another process may settle an attempt again. */
const REMEMBERED_MAX = 20_000;

/** What a settlement counted. */
interface Counted extends UsedTokens {
  audioMs?: number | undefined;
  images?: number | undefined;
}

interface SettledAttempt extends Counted {
  name: string;
  attempt: number;
  isComplete: boolean;
}

interface Remembered extends Counted {
  source: string;
  isComplete: boolean;
}

/**
 * Attempts that were settled recently. If a process ends, another one may settle an attempt that the first one has
 * settled. In memory: a new owner of the limits counts such an attempt twice. Pure.
 */
export class RecentSettlements {
  /** At most REMEMBERED_MAX; the oldest is dropped. */
  readonly #settled = new Map<string, Remembered>();

  /**
   * Remembers a settlement. @returns what another source settled for the attempt; undefined: nothing. It is
   * that of the settlement itself if the other source knew the complete usage and this one does not.
   */
  add(source: string, { name, attempt, isComplete, ...settled }: SettledAttempt): Counted | undefined {
    const { prompt, completion, audioMs, images } = settled;
    const counted = { prompt, completion, audioMs, images };
    const id = `${name}/${attempt}`;
    const known = this.#settled.get(id);
    if (known !== undefined && known.source !== source && known.isComplete && !isComplete) return counted;
    this.#settled.delete(id);
    this.#settled.set(id, { source, ...counted, isComplete });
    const [oldest] = this.#settled.keys();
    if (this.#settled.size > REMEMBERED_MAX && oldest !== undefined) this.#settled.delete(oldest);
    return known === undefined || known.source === source ? undefined : known;
  }
}
