/** Amounts by calendar month that are known only when an attempt has ended, so that no request reserves them. */
import type { Endpoint } from '../../../shared/openai/endpoints.ts';

/** `prefix`: a meter's ledger of the amount has the meter's id after it. */
export const MONTH_AMOUNTS = {
  gpuMs: {
    limit: 'gpu_seconds_per_month',
    header: 'gpu-seconds-month',
    shortage: 'gpu-month',
    perUnit: 1_000,
    prefix: 'gpu\n',
  },
  audioMs: {
    limit: 'audio_seconds_per_month',
    header: 'audio-seconds-month',
    shortage: 'audio-month',
    perUnit: 1_000,
    prefix: 'audio\n',
  },
  images: {
    limit: 'images_per_month',
    header: 'images-month',
    shortage: 'images-month',
    perUnit: 1,
    prefix: 'images\n',
  },
} as const;
export type MonthAmount = keyof typeof MONTH_AMOUNTS;
export const MONTH_AMOUNT_NAMES = Object.keys(MONTH_AMOUNTS) as MonthAmount[];

/** The amount that requests to an endpoint use, in addition to GPU time. Others fit a limit of it that is used up. */
export type MediaAmount = Exclude<MonthAmount, 'gpuMs'>;

export function mediaAmountOf({ media }: Pick<Endpoint, 'media'>): MediaAmount | undefined {
  if (media === undefined) return undefined;
  return media === 'images' ? 'images' : 'audioMs';
}

/** Stored usage by month: tokens, or one of these amounts. */
export interface MonthLedger {
  used(month: string): number;
  write(month: string, used: number): void;
}

/** The sum of one amount in the current month, and its ledger. */
export class MonthSum {
  readonly #ledger: MonthLedger;
  #month = '';
  #used = 0;

  constructor(ledger: MonthLedger) {
    this.#ledger = ledger;
  }

  /**
   * Returns the sum of the current month. Reads the ledger again if the month changed, also to an earlier month: a fast
   * clock may have begun the next month too soon, and is then corrected.
   */
  used(month: string): number {
    if (month !== this.#month) {
      this.#month = month;
      this.#used = this.#ledger.used(month);
    }
    return this.#used;
  }

  /**
   * Adds to the sum of `month`, which may be an earlier one than `current`. `more` may be negative. The sum is between 0
   * and the largest exact integer, because a larger sum would be stored wrong.
   */
  add(more: number, month: string, current: string): void {
    const before = month === current ? this.used(current) : this.#ledger.used(month);
    const used = Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, before + more));
    if (month === this.#month) this.#used = used;
    this.#ledger.write(month, used);
  }
}
