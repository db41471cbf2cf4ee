import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  type CallResult,
  decodeCallResult,
  encodeCallResult,
  headerJson,
} from '../../../gateway/tunnel/call/call-encoding.ts';

const HEAD = { headers: [['content-type', 'application/json']] as [string, string][], forwardMs: 1, engineMs: 0.5 };
const answer = (whole: Uint8Array): CallResult => ({ kind: 'whole', status: 200, head: HEAD, bytes: whole });
const text = new TextEncoder();

test('an answer comes to the Worker byte for byte, text or not', () => {
  const anything = fc.uint8Array({ maxLength: 300 });
  const words = fc.string({ unit: 'binary', maxLength: 100 }).map((one) => text.encode(one));
  fc.assert(
    fc.property(fc.oneof(anything, words), (whole) => {
      expect(decodeCallResult(encodeCallResult(answer(whole)))).toEqual(answer(whole));
    }),
  );
});

test.each([
  ['a byte order mark', '\ufeff{"a":1}'],
  ['line ends', '{\n"a":\r\n1}\n'],
  ['nothing', ''],
  ['more than travels as text', 'ä'.repeat(100_000)],
])('so does one with %s', (_, words) => {
  expect(decodeCallResult(encodeCallResult(answer(text.encode(words))))).toEqual(answer(text.encode(words)));
});

test('text travels as text, which costs least, and other bytes as bytes', () => {
  expect(typeof encodeCallResult(answer(text.encode('{}')))).toBe('string');
  expect(typeof encodeCallResult(answer(Uint8Array.of(0xff, 0xfe)))).toBe('object');
});

test('a value that is not a response passes unchanged', () => {
  for (const result of [{ kind: 'fetch' }, { kind: 'failure', code: 'lost', message: 'two\nlines' }] as CallResult[])
    expect(decodeCallResult(encodeCallResult(result))).toEqual(result);
});

test('a header is sent in ASCII, for any letters of an engine, and reads as before', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
      const value = headerJson({ headers: [['content-type', text]] });
      expect(value).toMatch(/^[\x20-\x7e]*$/);
      expect(JSON.parse(value)).toEqual({ headers: [['content-type', text]] });
    }),
  );
});
