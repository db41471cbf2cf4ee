import { type AttemptRequest, attemptName } from '../../../shared/attempts/attempt-request.ts';

/** Maximum number of attempts for which a late report is accepted. */
const RECEIPTS_MAX = 1_000;

/** Maximum number of remembered models. A node serves at most 64 models, rarely more than one. */
const MODELS_MAX = 16;

/** The recent requests to one peer, bounded; the oldest are dropped. */
export class RecentRequests {
  /** Receipts by attempt name. Late reports are accepted only for these attempts. */
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

  /** True if both peers were asked for the same model. */
  isLike(other: RecentRequests): boolean {
    return [...this.#models].some((model) => other.#models.has(model));
  }
}

function trim(kept: Map<string, unknown> | Set<string>, max: number): void {
  const oldest = kept.keys().next().value;
  if (kept.size > max && oldest !== undefined) kept.delete(oldest);
}
