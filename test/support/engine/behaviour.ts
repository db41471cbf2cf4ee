/**
 * The mock engine's behavior. A request sets it in its body under `stand_in` (a gateway that passes bodies byte for
 * byte lets it through), or `POST /__control` sent directly to the engine sets it for the next requests.
 */
import { z } from 'zod';

export const behaviourSchema = z.object({
  /** Tokens of an answer; the request's `max_tokens` still caps them. */
  tokens: z.number().int().min(0).max(10_000_000).optional(),
  /** Rate of a stream's tokens; 0: as fast as the reader accepts them. */
  tokensPerSecond: z.number().min(0).max(1_000_000).optional(),
  /** Duration of the prefill: the time before the head of the answer; with `earlyHead`, before its first token. */
  delayMs: z.number().min(0).max(3_600_000).optional(),
  /** A path on the engine's machine: the answer waits until the file exists. */
  gate: z.string().max(512).optional(),
  /** Retrievals that a response in the background answers with `queued` before it is complete. */
  polls: z.number().int().min(0).optional(),
  /** Sends the head of a stream before the prefill, as vLLM and SGLang do. */
  earlyHead: z.boolean().optional(),
  /** Answers with this status and an error body instead. */
  status: z.number().int().min(200).max(599).optional(),
  /** Only through `/__control`: the engine has lost its models. It lists none, and answers 404 for each. */
  forgets: z.boolean().optional(),
  /** Refuses bodies with `stream_options`, as servers with strict schemas do. */
  refusesUsage: z.boolean().optional(),
  /**
   * The answer's id. If it is set, the answer depends only on the request, so that two answers can be compared byte for
   * byte.
   */
  id: z.string().max(64).optional(),
  /** Additional headers of the response. */
  headers: z.record(z.string(), z.string()).optional(),
  /**
   * - reset-before-head: the socket is reset instead of an answer
   * - never: no answer, the socket stays open
   * - hang: only by `/__control`: until the next control request, no answer begins or continues, while `/health` and
   * `/v1/models` work
   * - reset / close / stall: after `afterTokens` tokens the socket is reset, ends without the end of the body, or
   * stalls
   * - end: after `afterTokens` tokens a stream ends like a complete one, but without its last events, as from a proxy
   * with a dead engine
   * - garbage: bytes that are not HTTP
   * - garbage-events: a stream with events that are not JSON
   */
  fault: z
    .enum(['reset-before-head', 'never', 'hang', 'reset', 'close', 'stall', 'end', 'garbage', 'garbage-events'])
    .optional(),
  afterTokens: z.number().int().min(0).optional(),
  /** A path on the engine's machine: a fault in a stream waits until the file exists. */
  faultGate: z.string().max(512).optional(),
  /** A stream stalls after this many tokens, so that a test can break it there. */
  pauseAfter: z.number().int().min(0).optional(),
  /** A faulty answer of `/tokenize`, instead of tokens. */
  tokenizer: z.enum(['none', 'garbage', 'empty', 'text']).optional(),
  /**
   * How the chat template renders a partial answer after its prompt. `trims`: without its white space. `thinks`: after
   * an empty thought.
   */
  template: z.enum(['plain', 'trims', 'thinks']).optional(),
  /** The model that the answer claims to be from. */
  claims: z.string().max(64).optional(),
  /** Duration of a management call, such as `/wake_up`. */
  managementMs: z.number().min(0).max(3_600_000).optional(),
  /** A faulty management call: confirmed without effect, never answered, or answered with 500. */
  management: z.enum(['ignored', 'hangs', 'refused']).optional(),
  /** The number of tokens that a non-streaming chat answer claims. */
  claimsTokens: z.number().int().min(0).optional(),
  /** Line ends of the event stream: both are legal (WHATWG HTML §9.2.5). */
  eol: z.enum(['lf', 'crlf']).optional(),
  /** Answers with a body of this many bytes of `patternBytes`. */
  bytes: z.number().int().min(0).optional(),
  /** False: the engine does not read the request's body. The sender must then stall, and not buffer more. */
  readBody: z.boolean().optional(),
});

export type Behaviour = z.infer<typeof behaviourSchema>;

export const controlSchema = z.object({
  behaviour: behaviourSchema,
  /** Number of requests to which the behavior applies; absent: all. */
  requests: z.number().int().min(1).optional(),
});
