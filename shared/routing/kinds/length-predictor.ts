import type { AnswerPrediction, ArrivingRequest } from './request-kind.ts';

/** Prompts of similar size share a class: three classes per factor of ten. */
const CLASSES_PER_DECADE = 3;
/** Minimum number of responses in a class. With fewer, the next coarser class decides. */
const SEEN_MIN = 8;
/** Maximum number of classes, each of about 100 bytes. Coarse classes are created first. */
const CLASSES_MAX = 50_000;
/** Share by which each response moves the estimate, at least. So newer responses count more. */
const FORGET = 0.02;

/**
 * Predicts the length of a response from responses to similar requests. Similar requests have the same sender, endpoint
 * and prompt size; if too few are known, fewer of these are compared. Keeps the mean of log tokens, because lengths are
 * log-normal (ServeGen §3), so a prediction is a median.
 */
export class LengthPredictor {
  readonly #classes = new Map<string, { logTokens: number; seen: number }>();
  readonly #keysOf: (request: ArrivingRequest) => string[];

  /** @param of `senders`: uses only responses to the same sender */
  constructor(of: 'senders' | 'all' = 'all') {
    this.#keysOf = of === 'senders' ? (request) => keysOf(request).slice(0, OF_SENDER) : keysOf;
  }

  /** Learns from a response that ended with `output` tokens. */
  learn(request: ArrivingRequest, output: number): void {
    const value = Math.log(Math.max(1, output));
    for (const key of this.#keysOf(request)) {
      const known = this.#classes.get(key);
      if (known === undefined) {
        if (this.#classes.size < CLASSES_MAX) this.#classes.set(key, { logTokens: value, seen: 1 });
        continue;
      }
      known.seen++;
      known.logTokens += (value - known.logTokens) * Math.max(FORGET, 1 / known.seen);
    }
  }

  predict(request: ArrivingRequest): AnswerPrediction {
    let found = { logTokens: Math.log(UNKNOWN_TOKENS), seen: 0 };
    for (const key of this.#keysOf(request)) {
      const known = this.#classes.get(key);
      if (known === undefined) continue;
      found = known;
      if (known.seen >= SEEN_MIN) break;
    }
    return {
      output: Math.min(request.maxTokens ?? Number.POSITIVE_INFINITY, Math.exp(found.logTokens)),
      seen: found.seen,
    };
  }
}

/** Assumed number of tokens if nothing is known. The planner assumes the same number for a model without records. */
const UNKNOWN_TOKENS = 256;

/** Number of keys that contain the sender; `keysOf` returns them first. */
const OF_SENDER = 2;

/** Keys from the finest class to the coarsest. */
function keysOf({ input, endpoint = '', sender = '' }: ArrivingRequest): string[] {
  const size = Math.round(Math.log10(Math.max(1, input)) * CLASSES_PER_DECADE);
  return [`${sender}|${endpoint}|${size}`, `${sender}|${endpoint}`, `|${endpoint}|${size}`, ''];
}
