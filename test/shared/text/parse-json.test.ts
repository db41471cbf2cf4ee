import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JSON_DEPTH_MAX, parseJson, tryParseJson } from '../../../shared/text/parse-json.ts';

const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

describe('JSON that comes in', () => {
  it('is read as JSON.parse reads it, with any strings in it', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(parseJson(text)).toEqual(JSON.parse(text));
      }),
    );
    const brackets = JSON.stringify(['['.repeat(1_000), '\\', '"[', '{\\"'.repeat(1_000)]);
    expect(parseJson(brackets)).toEqual(JSON.parse(brackets));
  });

  it.each([
    ['arrays', nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1)],
    [
      'objects behind a string that ends in a backslash',
      `["\\\\",${nested(JSON_DEPTH_MAX - 1)}]`,
      `["\\\\",${nested(JSON_DEPTH_MAX)}]`,
    ],
  ])('is refused when nested too deeply: %s', (_, good, deep) => {
    expect(tryParseJson(good)).toBeDefined();
    expect(JSON.parse(deep)).toBeDefined();
    expect(tryParseJson(deep)).toBeUndefined();
    expect(() => parseJson(deep)).toThrow(SyntaxError);
  });
});
