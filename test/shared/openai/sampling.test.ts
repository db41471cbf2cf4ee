import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SAMPLING_KEYS } from '../../../shared/openai/sampling.ts';
import { scanJson } from '../../../shared/openai/scan.ts';
import { bytes } from './support.ts';

const scan = (body: string) => scanJson(bytes(body)).sampling;

it('numbers are read as JSON.parse reads them, wherever they stand; other values are left to the engine', () => {
  const value = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer(),
    fc.string(),
    fc.boolean(),
    fc.constant(null),
  );
  const keys = SAMPLING_KEYS.filter((key) => !/^max_(completion|output)/.test(key));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...keys, 'model', 'messages'), value), (body) => {
      const text = JSON.stringify({ ...body, model: 'm' });
      const numbers = Object.entries(JSON.parse(text)).filter(
        ([key, one]) =>
          typeof one === 'number' && JSON.stringify(one).length <= 24 && keys.some((name) => name === key),
      );
      expect(scan(text) ?? {}).toEqual(Object.fromEntries(numbers));
    }),
  );
});

it('a limit of tokens has one name, and of two the last counts', () => {
  expect(scan('{"max_completion_tokens": 5}')).toEqual({ max_tokens: 5 });
  expect(scan('{"max_output_tokens": 6e1, "max_tokens":7}')).toEqual({ max_tokens: 7 });
  expect(scan('{"temperature":0.5,"temperature":1}')).toEqual({ temperature: 1 });
});

it('what is deeper, longer than a number or no number is nobody’s temperature', () => {
  expect(scan('{"stand_in":{"temperature":1}}')).toBeUndefined();
  expect(scan(`{"temperature":0.${'1'.repeat(30)},"top_p":1e999,"top_k":[1],"n":{"n":1}}`)).toEqual({});
});
