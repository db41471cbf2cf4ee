import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ApiError } from '../../../shared/openai/errors.ts';
import { requireModel, scanJson } from '../../../shared/openai/scan.ts';
import { bytes, gaps, space, type Tree, text, write } from './support.ts';

function failure(body: string | Uint8Array): ApiError {
  try {
    scanJson(typeof body === 'string' ? bytes(body) : body);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error(`accepted: ${String(body).slice(0, 200)}`);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** What JSON.parse makes of it: the oracle for validity. */
function parsed(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const LISTED = ['model', 'stream', 'stream_options', 'metadata', 'user', 'prompt_cache_key'];
const KEYS = [...LISTED, 'messages', 'input', 'Stream', 'models', 'mode', 'usera', '__proto__', 'prompt_cache_kez', ''];

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
  it('agrees with JSON.parse on the listed keys, whatever the order, white space and escapes', () => {
    fc.assert(
      fc.property(body, ({ keys, text }) => {
        const twice = LISTED.find((key) => keys.filter((other) => other === key).length > 1);
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
      { numRuns: 3000 },
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

describe('what is not a JSON object', () => {
  it.each([
    ['nothing', '', 'empty'],
    ['white space', ' \r\n\t', 'empty'],
    ['a byte order mark', '\ufeff{}', 'byte 0'],
    ['a list', '[{"model":"m"}]', 'must be an object'],
    ['a string', '"model"', 'must be an object'],
    ['null', 'null', 'must be an object'],
    ['NaN', '{"a":NaN}', 'byte 5'],
    ['Infinity', '{"a":-Infinity}', 'byte 5'],
    ['single quotes', "{'a':1}", 'byte 1'],
    ['a trailing comma', '{"a":1,}', 'byte 7'],
    ['a comment', '{"a":1/**/}', 'byte 6'],
    ['a second value', '{"a":1}{"a":2}', 'byte 7'],
    ['trailing garbage', '{"a":1}\u0000', 'byte 7'],
    ['a leading zero', '{"a":01}', 'byte 6'],
    ['a lone minus', '{"a":-}', 'byte 5'],
    ['a bare point', '{"a":1.}', 'byte 5'],
    ['an empty exponent', '{"a":1e+}', 'byte 5'],
    ['a cut word', '{"a":tru}', 'byte 5'],
    ['a cut body', '{"a":[1,2', 'byte 9'],
    ['a bare tab in a string', '{"a":"\t"}', 'byte 6'],
    ['an unknown escape', '{"a":"\\x41"}', 'byte 6'],
    ['a mismatched bracket', '{"a":[1}}', 'byte 7'],
    ['a number as a key', '{1:2}', 'byte 1'],
    ['vertical tab as white space', '{\u000b}', 'byte 1'],
  ])('is refused: %s', (_, body, words) => {
    const error = failure(body);
    expect([error.status, error.code]).toEqual([400, 'invalid_json']);
    expect(error.message).toContain(words);
  });

  it('may nest 512 deep and no deeper, in lists and objects, also inside listed keys', () => {
    const lists = (n: number) => `${'['.repeat(n)}${']'.repeat(n)}`;
    const objects = (n: number) => `${'{"a":'.repeat(n)}1${'}'.repeat(n)}`;
    for (const key of ['k', 'metadata', 'stream_options', 'user']) {
      for (const nested of [lists, objects]) {
        scanJson(bytes(`{"${key}":${nested(511)}}`));
        expect(failure(`{"${key}":${nested(512)}}`).message).toContain('512');
      }
    }
    expect(failure('['.repeat(1_000_000)).code).toBe('invalid_json');
  });

  it('passes lone surrogates and invalid UTF-8: the engine decides', () => {
    expect(scanJson(bytes('{"model":"m","a":"\\ud800"}')).model?.value).toBe('m');
    const invalid = new Uint8Array([...bytes('{"model":"m","a":"'), 0xff, 0xc0, 0x80, ...bytes('"}')]);
    expect(scanJson(invalid).model?.value).toBe('m');
  });
});

describe('a listed key', () => {
  it.each(LISTED)('%s twice is refused, wherever and however it is written', (key) => {
    const value = key === 'model' ? '"m"' : 'null';
    const escapes = [`"${key}"`, `"\\u00${key.charCodeAt(0).toString(16)}${key.slice(1)}"`];
    for (const first of escapes) {
      for (const second of escapes) {
        for (const between of ['', `"x":{${first}:1},`]) {
          const error = failure(`{${first}:${value},${between}${second} : ${value}}`);
          expect([error.status, error.code, error.param]).toEqual([400, 'duplicate_key', key]);
        }
      }
    }
  });

  it('is found when every one of its letters is an escape', () => {
    expect(scanJson(bytes('{"\\u006D\\u006f\\u0064\\u0065\\u006c":"m"}')).model?.value).toBe('m');
  });

  it('counts at the top only', () => {
    const scan = scanJson(bytes('{"a":{"model":"x","stream":true},"b":[{"model":"y"}],"c":"\\"model\\":\\"z\\""}'));
    expect([scan.model, scan.stream]).toEqual([undefined, false]);
  });

  it('model may not be shadowed by the same word in another case: some engines take either', () => {
    expect(failure('{"model":"allowed","Model":"secret"}').code).toBe('duplicate_key');
    expect(failure('{"\\u004dODEL":"secret","model":"allowed"}').code).toBe('duplicate_key');
    expect(scanJson(bytes('{"Model":"m"}')).model).toBeUndefined();
  });

  it.each(['""', 'null', '1', '["m"]', '{"a":1}', 'true', `"${'m'.repeat(257)}"`, `"${'\\u006d'.repeat(257)}"`])(
    'model may not be %s',
    (value) => {
      const error = failure(`{"model":${value}}`);
      expect([error.status, error.code, error.param]).toEqual([400, 'invalid_request', 'model']);
    },
  );

  it('model may be 256 characters long in any writing', () => {
    expect(scanJson(bytes(`{"model":"${'\\u006d'.repeat(256)}"}`)).model?.value).toBe('m'.repeat(256));
  });

  it('model keeps a byte order mark: it would be another name to the engine', () => {
    expect(scanJson(bytes('{"model":"\ufeffm"}')).model?.value).toBe('\ufeffm');
    const long = `\ufeff${'m'.repeat(60)}`;
    expect(scanJson(bytes(`{"model":"${long}"}`)).model?.value).toBe(long);
  });

  it.each(['1', '"true"', '[]', '{}', '0'])('stream may not be %s, which engines coerce', (value) => {
    const error = failure(`{"stream":${value}}`);
    expect([error.code, error.param]).toEqual(['invalid_request', 'stream']);
  });

  it('include_usage inside stream_options may stand once', () => {
    const error = failure('{"stream_options":{"include_usage":true,"\\u0069nclude_usage":false}}');
    expect([error.code, error.param]).toEqual(['duplicate_key', 'stream_options.include_usage']);
  });

  it('user and prompt_cache_key of absurd length are no hints', () => {
    const long = 'u'.repeat(513);
    const scan = scanJson(bytes(`{"user":"${long}","prompt_cache_key":"${long}"}`));
    expect([scan.user, scan.promptCacheKey]).toEqual([undefined, undefined]);
    expect(scanJson(bytes(`{"user":"${'u'.repeat(512)}"}`)).user).toHaveLength(512);
  });

  it('model is asked for where it is needed', () => {
    expect(requireModel(scanJson(bytes('{"model":"m"}')))).toBe('m');
    expect(requireModel({ model: 'from-a-form' })).toBe('from-a-form');
    expect(() => requireModel(scanJson(bytes('{}')))).toThrow(
      expect.objectContaining({ status: 400, code: 'invalid_request', param: 'model' }),
    );
  });
});

describe('metadata', () => {
  const metadata = (members: string) => scanJson(bytes(`{"metadata":{${members}}}`)).metadata;

  it('keeps strings and leaves out the rest', () => {
    expect(metadata('"a":"b","c":1,"d":null,"e":{"f":"g"},"h":["i"]')).toEqual({ a: 'b' });
  });

  it('takes the last of two equal keys, as every parser does', () => {
    expect(metadata('"a":"1","a":"2"')).toEqual({ a: '2' });
    expect(metadata('"a":"1","a":2')).toEqual({});
  });

  it('is bounded in entries, keys and values', () => {
    const many = Array.from({ length: 5000 }, (_, i) => `"k${i}":"v"`).join(',');
    expect(Object.keys(metadata(many) ?? {})).toHaveLength(64);
    expect(metadata(`"${'k'.repeat(300)}":"v","a":"${'v'.repeat(5000)}"`)).toEqual({});
  });

  it('never overlooks a member that restricts the routing', () => {
    const many = Array.from({ length: 100 }, (_, i) => `"k${i}":"v"`).join(',');
    expect(metadata(`${many},"otela_trusted_providers":"eth"`)).toHaveProperty('otela_trusted_providers', 'eth');
    for (const value of ['["eth"]', '1', 'true', '{}', `"${'e'.repeat(5000)}"`]) {
      const error = failure(`{"metadata":{"otela_trusted_providers":${value}}}`);
      expect([error.code, error.param]).toEqual(['invalid_request', 'metadata.otela_trusted_providers']);
    }
    expect(failure('{"metadata":{"otela_require":"a","\\u006ftela_require":"b"}}').code).toBe('duplicate_key');
    expect(metadata('"otela_require":null')).toEqual({});
    const ours = Array.from({ length: 100 }, (_, i) => `"otela_${i}":"v"`).join(',');
    expect(failure(`{"metadata":{${ours}}}`).code).toBe('invalid_request');
  });

  it('is only data: a key named __proto__ is a key', () => {
    const found = metadata('"__proto__":"x"');
    expect(Object.entries(found ?? {})).toEqual([['__proto__', 'x']]);
  });
});

describe('the time a scan takes', () => {
  const measured = (name: string, body: Uint8Array, runs: number): number => {
    for (let i = 0; i < runs / 2; i++) scanJson(body);
    const begin = performance.now();
    for (let i = 0; i < runs; i++) scanJson(body);
    const eachMs = (performance.now() - begin) / runs;
    console.log(
      `scan of ${name}, ${body.length} bytes: ${eachMs >= 1 ? `${eachMs.toFixed(1)} ms` : `${(eachMs * 1000).toFixed(2)} µs`}`,
    );
    return eachMs;
  };

  it('is microseconds for a small chat', () => {
    const chat = {
      model: 'meta-llama/Llama-3.1-8B-Instruct',
      messages: [
        { role: 'user', content: 'Write a short poem about the sea and the sky over Zürich, in four lines, please.' },
      ],
      stream: true,
      temperature: 0.7,
      max_tokens: 128,
      metadata: { otela_require: 'gpu=GH200' },
    };
    expect(measured('a small chat', bytes(JSON.stringify(chat)), 20_000)).toBeLessThan(0.1);
  });

  it('is far below a second for 32 MiB of images', () => {
    const url = `data:image/png;base64,${'QUJD'.repeat(8 * 1024 * 1024)}`;
    expect(
      measured('an image', bytes(JSON.stringify({ messages: [{ content: [{ url }] }], model: 'm' })), 2),
    ).toBeLessThan(1000);
  });
});
