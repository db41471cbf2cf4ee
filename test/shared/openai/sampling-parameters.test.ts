import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseBody } from '../../../shared/attempts/parsed-request.ts';
import { ENDPOINTS } from '../../../shared/openai/endpoints.ts';
import { SAMPLING_KEYS } from '../../../shared/openai/sampling-parameters.ts';
import { scanJson } from '../../../shared/openai/scan-json-body.ts';
import { failure } from './scanned.ts';
import { bytes } from './support.ts';

const scan = (body: string) => scanJson(bytes(body)).sampling;

/** The sampling settings that an endpoint reads from these members. */
function sampling(path: string, members: string) {
  const endpoint = ENDPOINTS.find((one) => one.path === path);
  if (endpoint === undefined) throw new Error(path);
  return parseBody(bytes(`{"model":"m",${members}}`), 'application/json', endpoint).sampling;
}

const COUNTED = ['max_tokens', 'max_completion_tokens', 'max_output_tokens', 'n_predict', 'n'];
const PLAIN = SAMPLING_KEYS.filter((key) => !COUNTED.includes(key));

it('numbers are read as JSON.parse reads them, wherever they stand; of those that limit nothing the engine judges other values', () => {
  const number = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer());
  const value = fc.oneof(number, fc.string(), fc.boolean(), fc.constant(null));
  fc.assert(
    fc.property(
      fc.dictionary(fc.constantFrom(...PLAIN, 'model', 'messages'), value),
      fc.dictionary(fc.constantFrom(...COUNTED), fc.oneof(fc.integer(), fc.constant(null))),
      (body, counted) => {
        const text = JSON.stringify({ ...body, ...counted, model: 'm' });
        const numbers = Object.entries(JSON.parse(text)).filter(
          ([key, one]) =>
            typeof one === 'number' && JSON.stringify(one).length <= 24 && SAMPLING_KEYS.some((name) => name === key),
        );
        expect(scan(text) ?? {}).toEqual(Object.fromEntries(numbers));
      },
    ),
  );
});

it.each(COUNTED)('%s may not be what an engine reads as a number and the gateway does not', (key) => {
  for (const value of ['"100000"', 'true', '[5]', '1e999', `1${'0'.repeat(24)}`, `100000.${'0'.repeat(20)}`]) {
    const error = failure(`{"model":"m","${key}":${value}}`);
    expect([value, error.status, error.code, error.param]).toEqual([value, 400, 'invalid_request', key]);
  }
  expect(scan(`{"${key}":null}`)).toEqual({});
});

it.each([
  ['"128"', 'a string'],
  ['true', 'a boolean'],
  ['[5]', 'an array'],
  ['{}', 'an object'],
  ['1e999', 'a number that is too large or longer than 24 characters'],
])('the refusal of %s says what the value is and what it must be', (value, kind) => {
  const { message } = failure(`{"model":"m","max_tokens":${value}}`);
  expect(message).toBe(`'max_tokens' must be a whole number or null, but is ${kind}.`);
});

it('a limit in another case is refused: engines in Go take it for the limit, others do not', () => {
  for (const key of ['Max_Tokens', 'max_to\u212aens', 'MAX\\u005fTOKENS', 'max_tokenſ']) {
    const error = failure(`{"model":"m","max_tokens":1,"${key}":100000}`);
    expect([key, error.status, error.param]).toEqual([key, 400, 'max_tokens']);
  }
});

it('of two lengths that an endpoint knows the longer counts, since engines differ in which one they take', () => {
  const path = '/v1/chat/completions';
  expect(sampling(path, '"max_completion_tokens":5')).toEqual({ max_tokens: 5 });
  expect(sampling(path, '"max_tokens":1,"max_completion_tokens":6e4')).toEqual({ max_tokens: 60_000 });
  expect(sampling(path, '"max_completion_tokens":60000,"max_tokens":1')).toEqual({ max_tokens: 60_000 });
  expect(sampling(path, '"max_tokens":null,"max_completion_tokens":7')).toEqual({ max_tokens: 7 });
});

it('a length that the endpoint does not know bounds nothing', () => {
  expect(sampling('/v1/chat/completions', '"max_output_tokens":1')).toEqual({});
  expect(sampling('/v1/completions', '"max_completion_tokens":1')).toEqual({});
  expect(sampling('/v1/responses', '"max_tokens":1,"max_output_tokens":9')).toEqual({ max_tokens: 9 });
  expect(sampling('/v1/responses', '"max_tokens":1')).toEqual({});
  expect(sampling('/v1/messages', '"max_output_tokens":1,"max_tokens":8')).toEqual({ max_tokens: 8 });
});

it('llama.cpp takes n_predict before max_tokens: it makes an answer longer, never shorter', () => {
  expect(sampling('/v1/completions', '"max_tokens":1,"n_predict":9')).toEqual({ max_tokens: 9 });
  expect(sampling('/v1/completions', '"max_tokens":1,"n_predict":-1')).toEqual({});
  expect(sampling('/v1/completions', '"n_predict":1')).toEqual({});
});

it('each endpoint that generates says which keys bound its answers', () => {
  const generating = ENDPOINTS.filter(({ generates }) => generates);
  expect(generating.map(({ path }) => path)).toContain('/v1/chat/completions');
  for (const { path, answerLimits } of generating) expect([path, answerLimits.length > 0]).toEqual([path, true]);
});

it('what is deeper, longer than a number or no number is no temperature', () => {
  expect(scan('{"stand_in":{"temperature":1}}')).toBeUndefined();
  expect(scan(`{"temperature":0.${'1'.repeat(30)},"top_p":1e999,"top_k":[1],"min_p":{"n":1}}`)).toEqual({});
});
