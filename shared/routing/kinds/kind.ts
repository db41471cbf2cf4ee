/** Kinds of requests: what one request of a kind costs on a replica is about what another costs. */

export interface RequestKind {
  /** Unique for its model, such as `long prompt, short answer`. */
  name: string;
  /** Geometric mean tokens of prompts and answers. */
  input: number;
  output: number;
  /** Share of the model's requests, 0 to 1. */
  share: number;
}

/** Kinds of one model. All of them travel in the snapshot, and each has weights of its own. */
export const KINDS_MAX = 12;
export const KIND_NAME_MAX_CHARS = 64;

/** Tokens of one request. */
export interface TokenCounts {
  input: number;
  output: number;
}

/** The kind of a request that is over: its lengths are nearest to that kind's, in logarithms. Undefined without kinds. */
export function nearestKind<K extends TokenCounts>(kinds: readonly K[], lengths: TokenCounts): K | undefined {
  return leastOf(kinds, (kind) => apart(kind.input, lengths.input) ** 2 + apart(kind.output, lengths.output) ** 2);
}

/** What is known of a request when it comes. */
export interface Arriving {
  /** Tokens of the prompt; estimated from bytes at a gateway. */
  input: number;
  /** `/v1/chat/completions`, … */
  endpoint?: string | undefined;
  /** Its key, service or client: the history is kept by it. */
  sender?: string | number | undefined;
  /** `max_tokens`, where the client set it. */
  maxTokens?: number | undefined;
}

/** `seen`: requests that the prediction rests on. */
export interface AnswerPrediction {
  output: number;
  seen: number;
}

/** Fewer answers than these are no history: the lengths that the kinds publish decide. */
const HISTORY_MIN = 8;
/** Requests of a kind vary by about this factor in logarithms: the weight of a kind's share against its distance. */
const SPREAD = 0.7;

/**
 * The kind of a request that comes. With a history of like requests: the kind nearest to its prompt and to their answers. Without one: the
 * kind nearest to its prompt, frequent kinds first; a kind whose answers `max_tokens` would cut is as far away as it would be cut.
 */
export function judgeKind<K extends RequestKind>(
  kinds: readonly K[],
  { input, maxTokens = Number.POSITIVE_INFINITY }: Arriving,
  answer: AnswerPrediction,
): K | undefined {
  if (answer.seen >= HISTORY_MIN) return nearestKind(kinds, { input, output: Math.min(answer.output, maxTokens) });
  return leastOf(kinds, (kind) => {
    const cut = kind.output > maxTokens ? apart(kind.output, maxTokens) : 0;
    const rare = -2 * SPREAD ** 2 * Math.log(Math.max(kind.share, 1e-3));
    return apart(kind.input, input) ** 2 + cut ** 2 + rare;
  });
}

const apart = (a: number, b: number): number => Math.log(Math.max(1, a)) - Math.log(Math.max(1, b));

/** Of equals the first. */
function leastOf<K>(all: readonly K[], distance: (one: K) => number): K | undefined {
  let [found, least]: [K | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const one of all) {
    const away = distance(one);
    if (away < least) [found, least] = [one, away];
  }
  return found;
}
