/**
 * Errors as clients see them. Statuses, types and retry headers follow what the OpenAI SDKs do: they read `code`,
 * `param` and `type` only inside `error`, follow `x-should-retry` first, and ignore a `retry-after` above 60 s.
 */
import { encodeUtf8 } from './byte-search.ts';
import { quoteForMessage } from './quote-for-message.ts';

interface Kind {
  readonly status: number;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const NO_RETRY = { 'x-should-retry': 'false' };

/** One row per code. If a row sets no header, the SDKs retry 408, 409, 429 and ≥ 500 twice, after 0.5 s to 8 s. */
export const ERROR_KINDS = {
  invalid_request: { status: 400, type: 'invalid_request_error' },
  invalid_value: { status: 400, type: 'invalid_request_error' },
  invalid_type: { status: 400, type: 'invalid_request_error' },
  invalid_json: { status: 400, type: 'invalid_request_error' },
  invalid_multipart: { status: 400, type: 'invalid_request_error' },
  duplicate_key: { status: 400, type: 'invalid_request_error' },
  invalid_requirement: { status: 400, type: 'invalid_request_error' },
  unknown_provider: { status: 400, type: 'invalid_request_error' },
  /** OpenAI's code for a `previous_response_id` that names no stored response. */
  previous_response_not_found: { status: 400, type: 'invalid_request_error' },
  invalid_api_key: { status: 401, type: 'invalid_request_error' },
  model_not_allowed: { status: 403, type: 'permission_error' },
  no_trusted_provider: { status: 403, type: 'permission_error' },
  permission_denied: { status: 403, type: 'permission_error' },
  model_not_found: { status: 404, type: 'invalid_request_error' },
  not_found: { status: 404, type: 'invalid_request_error' },
  method_not_allowed: { status: 405, type: 'invalid_request_error' },
  request_timeout: { status: 408, type: 'timeout' },
  /** OpenAI's code for a realtime session at its maximum duration. It is sent in a message. */
  session_expired: { status: 408, type: 'invalid_request_error', headers: NO_RETRY },
  session_over: { status: 410, type: 'invalid_request_error' },
  /** OpenAI's SDKs retry 409. A conflict with an object's state would be the same after a retry. */
  conflict: { status: 409, type: 'invalid_request_error', headers: NO_RETRY },
  /**
   * A client that seals fetches the nodes' keys again and repeats the request itself. Other clients' SDKs repeat the
   * request twice.
   */
  seal_stale: { status: 409, type: 'invalid_request_error' },
  order_refused: { status: 409, type: 'invalid_request_error', headers: NO_RETRY },
  deployment_refused: { status: 409, type: 'invalid_request_error', headers: NO_RETRY },
  requirement_not_met: { status: 412, type: 'invalid_request_error' },
  request_too_large: { status: 413, type: 'invalid_request_error' },
  unsupported_media_type: { status: 415, type: 'invalid_request_error' },
  range_not_satisfiable: { status: 416, type: 'invalid_request_error' },
  /**
   * The request is well-formed but impossible: it contradicts itself, the existing state, or the time (RFC 9110
   * §15.5.21).
   */
  unprocessable_content: { status: 422, type: 'invalid_request_error' },
  /** Codex opens a WebSocket first. Only this status makes it use POST instead immediately. */
  upgrade_required: { status: 426, type: 'invalid_request_error', headers: { ...NO_RETRY, upgrade: 'HTTP/1.1' } },
  rate_limit_exceeded: { status: 429, type: 'rate_limit_error' },
  insufficient_quota: { status: 429, type: 'insufficient_quota', headers: NO_RETRY },
  queue_full: { status: 429, type: 'rate_limit_error', headers: { 'retry-after': '2' } },
  internal_error: { status: 500, type: 'server_error' },
  upstream_error: { status: 502, type: 'server_error' },
  no_capacity: { status: 503, type: 'service_unavailable_error', headers: { 'retry-after': '10' } },
  model_starting: { status: 503, type: 'service_unavailable_error' },
  server_is_overloaded: { status: 503, type: 'service_unavailable_error', headers: { 'retry-after': '1' } },
  upstream_timeout: { status: 504, type: 'timeout' },
} as const satisfies Record<string, Kind>;

export type ErrorCode = keyof typeof ERROR_KINDS;

interface ApiErrorOptions {
  /** Name of the parameter that caused the error, in the client's spelling. */
  param?: string;
  /** Headers with lower-case names. They replace headers of the same name in the code's row. */
  headers?: Record<string, string>;
  cause?: unknown;
}

/** The only kind of error that clients see. The message is for the client: it contains no addresses and no secrets. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    const kind: Kind = ERROR_KINDS[code];
    this.name = 'ApiError';
    this.code = code;
    this.status = kind.status;
    this.type = kind.type;
    this.param = options.param ?? null;
    this.headers = { ...kind.headers, ...options.headers };
  }

  /** The same error with the header that keeps SDKs from retrying. */
  withoutClientRetry(): ApiError {
    const { code, message, param, cause } = this;
    const headers = { ...this.headers, ...NO_RETRY };
    return new ApiError(code, message, { ...(param !== null && { param }), headers, cause });
  }
}

/** Maximum of `retry-after`. SDKs use a value of at most 60 s; at a larger one they would retry after half a second. */
const MAX_RETRY_AFTER_S = 60;

/** `retry-after` for a wait in milliseconds, within the range that SDKs use. */
export function retryAfter(waitMs: number): { 'retry-after': string } {
  const seconds = Number.isFinite(waitMs) ? Math.ceil(waitMs / 1000) : MAX_RETRY_AFTER_S;
  return { 'retry-after': String(Math.min(MAX_RETRY_AFTER_S, Math.max(1, seconds))) };
}

export function methodNotAllowed(method: string, path: string, allowed: readonly string[]): ApiError {
  const allow = allowed.join(', ');
  return new ApiError('method_not_allowed', `${method} is not allowed on ${quoteForMessage(path)}; use ${allow}.`, {
    headers: { allow },
  });
}

/**
 * Converts any failure into an error that a client may see. An error that is not an ApiError becomes the cause of an
 * `internal_error`, so that the client does not see its text.
 */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError('internal_error', 'The gateway failed to handle this request.', { cause: error });
}

function envelope(error: ApiError): { error: Record<'message' | 'type' | 'param' | 'code', string | null> } {
  return { error: { message: error.message, type: error.type, param: error.param, code: error.code } };
}

/** OpenAI's envelope: https://platform.openai.com/docs/guides/error-codes */
export function errorBody(error: ApiError): string {
  return JSON.stringify(envelope(error));
}

/** Anthropic's error types by status: https://docs.anthropic.com/en/api/errors */
const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

function anthropicType(status: number): string {
  return ANTHROPIC_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
}

/** An engine's error in the form of Anthropic's clients. */
export function anthropicErrorBody(status: number, message: string): string {
  return JSON.stringify({ type: 'error', error: { type: anthropicType(status), message } });
}

/** The form of Anthropic's clients, with our `param` and `code` in addition. */
function anthropicEnvelope(error: ApiError) {
  const { message, param, code } = error;
  return { type: 'error', error: { type: anthropicType(error.status), message, param, code } };
}

interface InBandErrors {
  /** The form of an error that is sent after the response's head. */
  readonly inBandError: 'openai' | 'responses' | 'anthropic';
}

/**
 * The body of an error response in the form that the endpoint's clients expect. If there is no endpoint, the form is
 * OpenAI's.
 */
export function errorBodyFor(endpoint: InBandErrors | undefined, error: ApiError): string {
  return endpoint?.inBandError === 'anthropic' ? JSON.stringify(anthropicEnvelope(error)) : errorBody(error);
}

/** An error that is sent after the response's head. The stream must end after it, without a terminal event. */
export function inBandError(endpoint: InBandErrors, error: ApiError): Uint8Array {
  switch (endpoint.inBandError) {
    case 'responses': {
      // Clients of /v1/responses read `type`, and skip an event without one. OpenAI's SDKs look for `error` in every
      // event.
      const { message, param, code } = error;
      const event = { type: 'error', sequence_number: 0, code, message, param, ...envelope(error) };
      return encodeUtf8(`event: error\ndata: ${JSON.stringify(event)}\n\n`);
    }
    case 'openai':
      // Sent without an `event:` line, because openai-python 3 raises no error for an event that has a name.
      return encodeUtf8(`data: ${errorBody(error)}\n\n`);
    case 'anthropic': {
      return encodeUtf8(`event: error\ndata: ${JSON.stringify(anthropicEnvelope(error))}\n\n`);
    }
  }
}
