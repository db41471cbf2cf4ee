/** A kind of requests: requests of one kind cost about the same on a replica. */

export interface RequestKind {
  /** Unique within its model, such as `long prompt, short answer`. */
  name: string;
  /** Geometric mean of prompt and answer tokens. */
  input: number;
  output: number;
  /** Share of the model's requests, 0 to 1. */
  share: number;
}

/** Kinds per model. All of them travel in the snapshot, and each can have weights. */
export const KINDS_MAX = 12;
export const KIND_NAME_MAX_CHARS = 64;

/** Tokens of one request. */
interface TokenCounts {
  input: number;
  output: number;
}

/** The kind of a finished request: the one with the nearest lengths, in logarithms. Undefined if there are no kinds. */
export function nearestKind<K extends TokenCounts>(kinds: readonly K[], lengths: TokenCounts): K | undefined {
  return leastOf(kinds, (kind) => apart(kind.input, lengths.input) ** 2 + apart(kind.output, lengths.output) ** 2);
}

/** What is known about a request when it arrives. */
export interface ArrivingRequest {
  /** Prompt tokens; a gateway estimates them from the bytes. */
  input: number;
  /** `/v1/chat/completions`, … */
  endpoint?: string | undefined;
  /** Key, service or client; the history is kept per sender. */
  sender?: string | number | undefined;
  /** `max_tokens`, if the client set it. */
  maxTokens?: number | undefined;
}

/** `seen`: number of requests behind the prediction. */
export interface AnswerPrediction {
  output: number;
  seen: number;
}

/** Fewer answers than this are no history; the published lengths of the kinds decide. */
const HISTORY_MIN = 8;
/** Requests of one kind vary by about this factor in logarithms. Weighs a kind's share against its distance. */
const SPREAD = 0.7;

/**
 * The kind of an arriving request. With a history of similar requests: the kind nearest to its prompt and to their
 * answers. Without one: the kind nearest to its prompt, weighted by frequency; a kind whose answers `max_tokens` would
 * cut is further away by as much as it would be cut.
 */
export function classifyRequest<K extends RequestKind>(
  kinds: readonly K[],
  { input, maxTokens = Number.POSITIVE_INFINITY }: ArrivingRequest,
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

/** On a tie the first wins. */
function leastOf<K>(all: readonly K[], distance: (one: K) => number): K | undefined {
  let [found, least]: [K | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const one of all) {
    const away = distance(one);
    if (away < least) [found, least] = [one, away];
  }
  return found;
}
