import { APIError as AnthropicError } from '@anthropic-ai/sdk';
import { Stream as AnthropicStream } from '@anthropic-ai/sdk/streaming';
import { APIError } from 'openai';
import { Stream } from 'openai/streaming';
import { describe, expect, it } from 'vitest';
import {
  ApiError,
  ERROR_KINDS,
  type ErrorCode,
  errorBody,
  inBandError,
  methodNotAllowed,
  retryAfter,
  toApiError,
} from '../../../shared/openai/api-errors.ts';
import { type Endpoint, findEndpoint } from '../../../shared/openai/endpoints.ts';
import { bytes, text } from './support.ts';

const at = (path: string): Endpoint => {
  const found = findEndpoint('POST', path);
  if (found === undefined || 'methodNotAllowed' in found) throw new Error(path);
  return found;
};
const chat = at('/v1/chat/completions');
const messages = at('/v1/messages');
const responses = at('/v1/responses');
const codes = Object.keys(ERROR_KINDS) as ErrorCode[];

describe('our own errors', () => {
  it('have the statuses that the contract names', () => {
    const contract: Record<number, ErrorCode[]> = {
      400: ['invalid_json', 'duplicate_key', 'invalid_requirement', 'unknown_provider'],
      401: ['invalid_api_key'],
      403: ['model_not_allowed', 'no_trusted_provider'],
      404: ['model_not_found'],
      412: ['requirement_not_met'],
      413: ['request_too_large'],
      429: ['rate_limit_exceeded', 'insufficient_quota', 'queue_full'],
      502: ['upstream_error'],
      503: ['no_capacity', 'server_is_overloaded'],
      504: ['upstream_timeout'],
    };
    for (const [status, list] of Object.entries(contract)) {
      for (const code of list) expect([code, new ApiError(code, 'x').status]).toEqual([code, Number(status)]);
    }
  });

  it('have the OpenAI envelope, with strings or null and nothing else', () => {
    for (const code of codes) {
      const { error } = JSON.parse(errorBody(new ApiError(code, 'why "so"\n')));
      expect(error).toEqual({ message: 'why "so"\n', type: expect.any(String), param: null, code });
    }
    const { error } = JSON.parse(errorBody(new ApiError('invalid_request', 'm', { param: 'model' })));
    expect(error.param).toBe('model');
  });

  it('never ask an SDK to wait longer than it would obey', () => {
    for (const code of codes) {
      const seconds = new ApiError(code, 'x').headers['retry-after'];
      if (seconds !== undefined) expect(Number(seconds)).toSatisfy((n: number) => n >= 1 && n <= 60);
    }
    expect(new ApiError('no_capacity', 'x').headers['retry-after']).toBeDefined();
  });

  it('tell SDKs not to retry when money is what lacks', () => {
    expect(new ApiError('insufficient_quota', 'x').headers).toEqual({ 'x-should-retry': 'false' });
  });

  it('take headers over the ones of their code', () => {
    const error = new ApiError('no_capacity', 'x', { headers: { 'retry-after': '3', 'x-a': 'b' } });
    expect(error.headers).toEqual({ 'retry-after': '3', 'x-a': 'b' });
    expect(new ApiError('no_capacity', 'x').headers).not.toHaveProperty('x-a');
  });

  it.each([
    [0, '1'],
    [-5, '1'],
    [1, '1'],
    [1001, '2'],
    [59_001, '60'],
    [3_600_000, '60'],
    [Number.NaN, '60'],
    [Number.POSITIVE_INFINITY, '60'],
  ])('turn a wait of %d ms into %s s', (waitMs, seconds) => {
    expect(retryAfter(waitMs)).toEqual({ 'retry-after': seconds });
  });

  it('name the methods that would have been right', () => {
    const error = methodNotAllowed('GET', '/v1/embeddings', ['POST']);
    expect([error.status, error.headers.allow]).toEqual([405, 'POST']);
  });
});

describe('any other failure', () => {
  it.each([new Error('postgres://user:secret@host'), 'secret', undefined, null, { message: 'secret', status: 200 }])(
    'becomes a 500 that says nothing about itself (%#)',
    (failure) => {
      const error = toApiError(failure);
      expect([error.status, error.code, error.type]).toEqual([500, 'internal_error', 'server_error']);
      expect(errorBody(error)).not.toContain('secret');
      expect(error.cause).toBe(failure);
    },
  );

  it('is left alone if it already is one of ours', () => {
    const error = new ApiError('no_capacity', 'x');
    expect(toApiError(error)).toBe(error);
  });
});

async function drain(stream: AsyncIterable<unknown>): Promise<unknown[]> {
  const seen: unknown[] = [];
  for await (const item of stream) seen.push(item);
  return seen;
}

describe('an error after the head has gone out', () => {
  const error = new ApiError('upstream_timeout', 'The engine was silent.\n\ndata: [DONE]');

  it('is one event: a message cannot end it early', () => {
    expect(text(inBandError(chat, error)).split('\n\n')).toEqual([expect.stringMatching(/^data: \{"error":/), '']);
    expect(text(inBandError(messages, error)).split('\n\n')).toEqual([
      expect.stringMatching(/^event: error\ndata: \{"type":"error"/),
      '',
    ]);
  });

  it('has a type where clients go by types', () => {
    const [, data = ''] = text(inBandError(responses, error)).split('\ndata: ');
    expect(text(inBandError(responses, error))).toMatch(/^event: error\ndata: [^\n]+\n\n$/);
    expect(JSON.parse(data)).toMatchObject({
      type: 'error',
      sequence_number: 0,
      code: 'upstream_timeout',
      message: error.message,
      param: null,
    });
  });

  it.each([chat, responses])('is raised by the OpenAI SDK, with its code: $path', async (endpoint) => {
    const body = [bytes(': ping\n\n'), bytes('data: {"choices":[]}\n\n'), inBandError(endpoint, error)];
    const stream = Stream.fromSSEResponse(new Response(Buffer.concat(body)), new AbortController());
    const failure = await drain(stream).catch((thrown: unknown) => thrown);
    expect(failure).toBeInstanceOf(APIError);
    expect(failure).toMatchObject({ code: 'upstream_timeout', type: 'timeout' });
  });

  it('is raised by the Anthropic SDK', async () => {
    const body = [bytes(': ping\n\n'), inBandError(messages, error)];
    const stream = AnthropicStream.fromSSEResponse(new Response(Buffer.concat(body)), new AbortController());
    const failure = await drain(stream).catch((thrown: unknown) => thrown);
    expect(failure).toBeInstanceOf(AnthropicError);
    expect(String(failure)).toContain('The engine was silent.');
  });

  it.each([
    ['invalid_json', 'invalid_request_error'],
    ['invalid_api_key', 'authentication_error'],
    ['model_not_found', 'not_found_error'],
    ['queue_full', 'rate_limit_error'],
    ['no_capacity', 'overloaded_error'],
    ['upstream_error', 'api_error'],
  ] as const)('calls %s %s to an Anthropic client', (code, type) => {
    expect(text(inBandError(messages, new ApiError(code, 'x')))).toContain(`"error":{"type":"${type}"`);
  });
});
