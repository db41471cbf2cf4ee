/** The mock's answer at an endpoint, before pace and faults are applied to it. */
import type { Behaviour } from './behaviour.ts';

export interface SseEvent {
  event?: string;
  /**
   * The event's data, which is sent unchanged. The endpoint serializes objects itself, so that it controls the bytes.
   */
  data: string;
  /** True if the event contains a token: pace and faults count tokens. */
  token?: boolean;
}

export type Answer =
  | { kind: 'json'; status: number; body: unknown; tokens?: number }
  | { kind: 'bytes'; contentType: string; size: number }
  | { kind: 'stream'; events: Iterable<SseEvent> };

/** A request for an endpoint. `tokens` is the length of the answer, after `max_tokens`. */
export interface Ask {
  body: Record<string, unknown>;
  model: string;
  tokens: number;
  finish: 'stop' | 'length';
  /** Tokens that the prompt already contains; the answer continues after them. */
  already: number;
  id: string;
  /** Time of the answer, in seconds since 1970. */
  created: number;
  behaviour?: Behaviour;
}

export const FINGERPRINT = 'otela-stand-in';

export function json(body: unknown, tokens?: number): Answer {
  return tokens === undefined ? { kind: 'json', status: 200, body } : { kind: 'json', status: 200, body, tokens };
}

/** The response of vLLM's and SGLang's web framework for an unknown path. */
export const NO_PATH: Answer = { kind: 'json', status: 404, body: { detail: 'Not Found' } };

/** vLLM's error body (its `code` is the status as a number). */
export function refuse(status: number, type: string, message: string, param: string | null = null): Answer {
  return { kind: 'json', status, body: { error: { message, type, param, code: status } } };
}

export function missing(member: string): Answer {
  const what = `1 validation error:\n  {'type': 'missing', 'loc': 'body.${member}', 'msg': 'Field required'}`;
  return refuse(400, 'Bad Request', what, `body.${member}`);
}
