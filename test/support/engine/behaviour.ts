/**
 * What a caller may ask of the stand-in engine. Either for one request, in its body under `stand_in` (gateways that pass bodies byte for
 * byte let it through), or for the next requests of any kind, by `POST /__control` straight at the engine.
 */
import { z } from 'zod';

export const behaviourSchema = z.object({
  /** Tokens of an answer; `max_tokens` of the request still caps them. */
  tokens: z.number().int().min(0).max(10_000_000).optional(),
  /** 0: as fast as the reader takes them. */
  tokensPerSecond: z.number().min(0).max(1_000_000).optional(),
  /** Prefill: the time before the head of the answer; with `earlyHead` before its first token. */
  delayMs: z.number().min(0).max(3_600_000).optional(),
  /** A path of the engine's machine: the answer waits until a file is there. */
  gate: z.string().max(512).optional(),
  /** The head of a stream goes out before the prefill, as vLLM and SGLang send it. */
  earlyHead: z.boolean().optional(),
  /** Answers with this status and an error body instead. */
  status: z.number().int().min(200).max(599).optional(),
  /** Refuses bodies with `stream_options`, as servers with strict schemas do. */
  refusesUsage: z.boolean().optional(),
  /** The answer's id. With it the answer depends on the request alone: two of them can be compared byte for byte. */
  id: z.string().max(64).optional(),
  /** More headers of the answer. */
  headers: z.record(z.string(), z.string()).optional(),
  /**
   * reset-before-head: the socket is reset instead of an answer · never: no answer, the socket stays open
   * hang: by `/__control` alone: until the next one no answer begins and none goes on, while `/health` and `/v1/models` are fine
   * reset / close / stall: after `afterTokens` tokens the socket is reset, ends without the body's end, or falls silent
   * end: after `afterTokens` tokens a stream ends as a whole one does, but for its last events: so a proxy ends it whose engine died
   * garbage: bytes that are no HTTP · garbage-events: a stream whose events are no JSON
   */
  fault: z
    .enum(['reset-before-head', 'never', 'hang', 'reset', 'close', 'stall', 'end', 'garbage', 'garbage-events'])
    .optional(),
  afterTokens: z.number().int().min(0).optional(),
  /** A stream falls silent after so many tokens, for a test to break it there. */
  pauseAfter: z.number().int().min(0).optional(),
  /** What `/tokenize` answers instead of tokens. */
  tokenizer: z.enum(['none', 'garbage', 'empty', 'text']).optional(),
  /** How a partial answer is rendered behind its prompt: trims: without its white space · thinks: behind an empty thought. */
  template: z.enum(['plain', 'trims', 'thinks']).optional(),
  /** The model that the answer says it is from. */
  claims: z.string().max(64).optional(),
  /** The tokens that a whole chat answer says it has. */
  claimsTokens: z.number().int().min(0).optional(),
  /** Line ends of the event stream: both are legal (WHATWG HTML §9.2.5). */
  eol: z.enum(['lf', 'crlf']).optional(),
  /** Answers with a body of this many bytes of `patternBytes`. */
  bytes: z.number().int().min(0).optional(),
  /** false: the request's body is not read; its sender must stall, not grow. */
  readBody: z.boolean().optional(),
});

export type Behaviour = z.infer<typeof behaviourSchema>;

export const controlSchema = z.object({
  behaviour: behaviourSchema,
  /** How many requests it is for; all of them when absent. */
  requests: z.number().int().min(1).optional(),
});
