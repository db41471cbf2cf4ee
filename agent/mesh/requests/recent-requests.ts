import { type AttemptRequest, attemptName } from '../../../shared/upstream/attempt.ts';

/** Attempts whose late report is still believed. */
const RECEIPTS_MAX = 1_000;

/** A node serves 64 models at most, rarely more than one. */
const MODELS_MAX = 16;

/** What one peer was asked for. The oldest makes room. */
export class RecentRequests {
  /** By the attempt's name: a report that comes late is believed for these alone. */
  readonly #receipts = new Map<string, string>();
  readonly #models = new Set<string>();

  add(request: AttemptRequest): void {
    const { receipt, model } = request;
    this.#receipts.set(attemptName(request), receipt);
    trim(this.#receipts, RECEIPTS_MAX);
    if (model === undefined) return;
    this.#models.delete(model);
    this.#models.add(model);
    trim(this.#models, MODELS_MAX);
  }

  receiptOf(attempt: Pick<AttemptRequest, 'requestId' | 'attempt'>): string | undefined {
    return this.#receipts.get(attemptName(attempt));
  }

  /** Both were asked for one model. */
  isLike(other: RecentRequests): boolean {
    return [...this.#models].some((model) => other.#models.has(model));
  }
}

function trim(kept: Map<string, unknown> | Set<string>, max: number): void {
  const oldest = kept.keys().next().value;
  if (kept.size > max && oldest !== undefined) kept.delete(oldest);
}
