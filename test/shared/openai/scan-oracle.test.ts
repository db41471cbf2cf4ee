/** The scan against JSON.parse: both give the same result for any text. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KNOWN_KEYS } from '../../../shared/openai/known-body-keys.ts';
import { SAMPLING_KEYS } from '../../../shared/openai/sampling-parameters.ts';
import { scanJson } from '../../../shared/openai/scan-json-body.ts';
import { failure } from './scanned.ts';
import { bytes, gaps, space, type Tree, text, write } from './support.ts';

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The result of JSON.parse: the oracle for validity. */
function parsed(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const OWN = KNOWN_KEYS.filter((key) => !SAMPLING_KEYS.some((other) => other === key));
const KEYS = [...OWN, 'messages', 'input', 'Stream', 'models', 'mode', 'usera', '__proto__', 'prompt_cache_kez', ''];

const anyJson: fc.Arbitrary<Tree> = fc.jsonValue({ maxDepth: 3 }).map((json) => ({ json }));
const escapeEvery = fc.constantFrom(0, 0, 1, 2, 5);
const metadataTree: fc.Arbitrary<Tree> = fc
  .uniqueArray(
    fc.tuple(fc.oneof(fc.string({ maxLength: 20 }), fc.constant('__proto__')), fc.jsonValue({ maxDepth: 1 })),
    {
      selector: ([key]) => key,
      maxLength: 5,
    },
  )
  .chain((pairs) =>
    fc.tuple(...pairs.map(([key, json]) => fc.tuple(fc.constant(key), fc.constant({ json } as Tree), escapeEvery))),
  )
  .map((members) => ({ members }));
const optionsTree: fc.Arbitrary<Tree> = fc
  .uniqueArray(fc.constantFrom('include_usage', 'include_usag', 'continuous_usage_stats', 'include_usage2'), {
    maxLength: 3,
  })
  .chain((keys) =>
    fc.tuple(
      ...keys.map((key) =>
        fc.tuple(
          fc.constant(key),
          fc.oneof(
            fc.boolean().map((json): Tree => ({ json })),
            anyJson,
          ),
          escapeEvery,
        ),
      ),
    ),
  )
  .map((members) => ({ members }));

function valueFor(key: string): fc.Arbitrary<Tree> {
  switch (key) {
    case 'model':
      return fc.string({ minLength: 1, maxLength: 60, unit: 'grapheme' }).map((json) => ({ json }));
    case 'stream':
      return fc.constantFrom(true, false, null).map((json) => ({ json }));
    case 'stream_options':
      return fc.oneof(optionsTree, anyJson);
    case 'metadata':
      return fc.oneof(metadataTree, anyJson);
    case 'user':
    case 'prompt_cache_key':
      return fc.oneof(
        fc.string({ maxLength: 40, unit: 'grapheme' }).map((json): Tree => ({ json })),
        anyJson,
      );
    default:
      return anyJson;
  }
}

const member = fc.constantFrom(...KEYS).chain((key) => fc.tuple(fc.constant(key), valueFor(key), escapeEvery));
const body = fc
  .tuple(fc.array(member, { maxLength: 8 }), fc.array(space, { maxLength: 6 }))
  .map(([members, list]) => ({ keys: members.map(([key]) => key), text: write({ members }, gaps(list)) }));

function expectAgreement(text: string): void {
  const oracle = JSON.parse(text);
  const raw = bytes(text);
  const scan = scanJson(raw);
  expect(scan.model?.value).toBe(oracle.model);
  if (scan.model !== undefined) {
    expect(JSON.parse(Buffer.from(raw.subarray(scan.model.start, scan.model.end)).toString())).toBe(oracle.model);
  }
  expect(scan.stream).toBe(oracle.stream === true);
  expect(scan.user).toBe(typeof oracle.user === 'string' ? oracle.user : undefined);
  expect(scan.promptCacheKey).toBe(typeof oracle.prompt_cache_key === 'string' ? oracle.prompt_cache_key : undefined);
  const metadata = isObject(oracle.metadata)
    ? Object.entries(oracle.metadata).filter(([, value]) => typeof value === 'string')
    : undefined;
  expect(scan.metadata && Object.entries(scan.metadata).sort()).toEqual(metadata?.sort());
  expectOptions(raw, scan.streamOptions, oracle);
  expect(raw[scan.topEnd]).toBe(0x7d);
  expect(scan.empty).toBe(Object.keys(oracle).length === 0);
}

function expectOptions(
  raw: Uint8Array,
  options: ReturnType<typeof scanJson>['streamOptions'],
  oracle: Record<string, unknown>,
) {
  const wanted = oracle.stream_options;
  if (!Object.hasOwn(oracle, 'stream_options') || options === undefined) {
    expect([options, Object.hasOwn(oracle, 'stream_options')]).toEqual([undefined, false]);
    return;
  }
  expect(JSON.parse(text(raw.subarray(options.start, options.end)))).toEqual(wanted);
  expect(options.kind).toBe(wanted === null ? 'null' : isObject(wanted) ? 'object' : 'other');
  if (options.kind !== 'object' || !isObject(wanted)) return;
  expect(options.empty).toBe(Object.keys(wanted).length === 0);
  const asked = wanted.include_usage;
  expect(options.includeUsage?.value).toBe(
    asked === undefined ? undefined : asked === null || typeof asked === 'boolean' ? String(asked) : 'other',
  );
}

describe('a scan of a JSON body', () => {
  it('agrees with JSON.parse on the listed keys, for any order, white space and escapes', () => {
    fc.assert(
      fc.property(body, ({ keys, text }) => {
        const twice = KNOWN_KEYS.find(
          (key) => keys.includes(key) && keys.filter((other) => other.toLowerCase() === key).length > 1,
        );
        if (twice !== undefined) {
          expect(failure(text).code).toBe('duplicate_key');
          return;
        }
        expectAgreement(text);
      }),
      { numRuns: 1000 },
    );
  });

  it('agrees with JSON.parse on what is JSON, after any small damage', () => {
    const damage = fc.record({
      at: fc.nat(400),
      remove: fc.nat(2),
      insert: fc.constantFrom(
        '',
        '',
        '"',
        '\\',
        '\\u',
        '\\u12g4',
        '{',
        '}',
        '[',
        ']',
        ',',
        ':',
        '0',
        '-',
        '.',
        'e',
        '+',
        'null',
        'tru',
        'NaN',
        '\u0000',
        '\n',
        '\u001f',
        '\u007f',
        '\u00a0',
        '\ufeff',
        '/*',
        "'",
        ' ',
      ),
    });
    const nested = fc.jsonValue({ maxDepth: 4 }).map((value) => JSON.stringify({ k: value, x: [1.5e3, -0, 'é\n"\\'] }));
    let rejected = 0;
    fc.assert(
      fc.property(nested, fc.array(damage, { maxLength: 3 }), (whole, hits) => {
        const broken = hits.reduce((text, hit) => {
          const at = hit.at % (text.length + 1);
          return (text.slice(0, at) + hit.insert + text.slice(at + hit.remove)).toWellFormed();
        }, whole);
        if (parsed(broken) === undefined) {
          expect(failure(broken).code).toBe('invalid_json');
          rejected++;
        } else scanJson(bytes(broken));
      }),
      {
        numRuns: 3000,
        // Rarely generated.
        examples: [1, 2].map((marks) => ['{"k":1}', Array(marks).fill({ at: 0, remove: 0, insert: '\ufeff' })]),
      },
    );
    expect(rejected).toBeGreaterThan(500);
  });

  it('finds quotes, escapes and control characters in long strings, at every offset and alignment', () => {
    const plain = 'é'.repeat(10) + 'x'.repeat(90);
    for (let align = 0; align < 5; align++) {
      for (let at = 0; at <= plain.length; at++) {
        for (const hit of [
          '"',
          '\\"',
          '\\',
          '\\\\',
          '\\n',
          '\\u0041',
          '\\u004',
          '\t',
          '\u001f',
          ' ',
          '\u007f',
          '\u0080',
          '\uffff',
        ]) {
          const body = `{"k":"${plain.slice(0, at)}${hit}${plain.slice(at)}","model":"m"}`;
          const padded = bytes(' '.repeat(align) + body).subarray(align);
          if (parsed(body) === undefined) expect(failure(padded).code).toBe('invalid_json');
          else expect(scanJson(padded).model?.value).toBe('m');
        }
      }
    }
  });

  it('does not read beyond its own bytes when the buffer goes on', () => {
    const whole = bytes(`{"k":"${'x'.repeat(200)}"}`);
    for (let end = 0; end < whole.length; end++) expect(failure(whole.subarray(0, end)).code).toBe('invalid_json');
  });
});
