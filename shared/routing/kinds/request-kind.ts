/** A kind groups similar requests of a model. Requests of one kind cost about the same on a replica. */

export interface RequestKind {
  /** Unique within its model, for example `long prompt, short answer`. */
  name: string;
  /** Geometric means of the prompt's and the response's tokens. */
  input: number;
  output: number;
  /** Share of the model's requests, from 0 to 1. */
  share: number;
}

/** Maximum number of kinds per model. All of them travel in the snapshot, and each can have weights. */
export const KINDS_MAX = 12;
export const KIND_NAME_MAX_CHARS = 64;

/** Tokens of one request. */
interface TokenCounts {
  input: number;
  output: number;
}

/**
 * The kind of a finished request: the kind with the nearest prompt and response lengths, in logarithms. Undefined if
 * there are no kinds.
 */
export function nearestKind<K extends TokenCounts>(kinds: readonly K[], lengths: TokenCounts): K | undefined {
  return leastOf(kinds, (kind) => apart(kind.input, lengths.input) ** 2 + apart(kind.output, lengths.output) ** 2);
}

/** What is known about a request when it arrives. */
export interface ArrivingRequest {
  /** Tokens of the prompt; a gateway estimates them from the bytes. */
  input: number;
  /** The request's endpoint, such as `/v1/chat/completions`. */
  endpoint?: string | undefined;
  /** Id of the key, service or client that sent the request. Response lengths are learned per sender. */
  sender?: string | number | undefined;
  /** `max_tokens`, if the client set it. */
  maxTokens?: number | undefined;
}

/** `seen`: number of requests on which the prediction is based. */
export interface AnswerPrediction {
  output: number;
  seen: number;
}

/** Minimum number of similar responses. With fewer, the published lengths of the kinds decide. */
const HISTORY_MIN = 8;
/**
 * Typical spread of lengths within one kind, in logarithms. It determines how much a kind's share counts compared with
 * its distance.
 */
const SPREAD = 0.7;

/**
 * The kind of an arriving request. If enough similar requests are known, it is the kind nearest to this request's
 * prompt and to their responses. Otherwise it is the kind nearest to the prompt, and kinds with a larger share count as
 * nearer. If `max_tokens` would cut a kind's responses, that kind counts as further away.
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

/** If two distances are equal, the first element is returned. */
function leastOf<K>(all: readonly K[], distance: (one: K) => number): K | undefined {
  let [found, least]: [K | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const one of all) {
    const away = distance(one);
    if (away < least) [found, least] = [one, away];
  }
  return found;
}
