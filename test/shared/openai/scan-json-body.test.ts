import { isUtf8 } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { KNOWN_KEYS } from '../../../shared/openai/known-body-keys.ts';
import { requireModel, scanJson } from '../../../shared/openai/scan-json-body.ts';
import { costBeside, readOnce } from '../../support/cost.ts';
import { failure } from './scanned.ts';
import { bytes } from './support.ts';

describe('a body that is not a JSON object', () => {
  it.each([
    ['nothing', '', 'empty'],
    ['white space', ' \r\n\t', 'empty'],
    ['a byte order mark alone', '\ufeff', 'byte order mark'],
    ['a byte order mark before an object', '\ufeff{}', 'byte order mark'],
    ['a byte order mark behind white space', ' \ufeff{}', 'byte 1'],
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

  it('is text in UTF-8: engines read other bytes in their own ways', () => {
    const around = (...inside: number[]) => new Uint8Array([...bytes('{"model":"m","a":"'), ...inside, ...bytes('"}')]);
    for (const wrong of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xe2, 0x82], [0xf4, 0x90, 0x80, 0x80]]) {
      for (const check of [undefined, isUtf8])
        expect(() => scanJson(around(...wrong), check)).toThrow('not valid UTF-8');
    }
  });

  it('may hold letters of any length across the pieces in which it is decoded', () => {
    for (let shift = 0; shift < 4; shift++) {
      const body = bytes(`{"model":"m","a":"${'x'.repeat(65_536 - 20 + shift)}😀é€${'x'.repeat(70_000)}"}`);
      expect(scanJson(body).model?.value).toBe('m');
    }
  });

  it('passes lone surrogates that are escaped: the engine decides', () => {
    expect(scanJson(bytes('{"model":"m","a":"\\ud800"}')).model?.value).toBe('m');
  });
});

describe('a listed key', () => {
  it.each(KNOWN_KEYS)('%s twice is refused, wherever and however it is written', (key) => {
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

  it('stream may not be shadowed either', () => {
    const error = failure('{"stream":false,"model":"m","Stream":true}');
    expect([error.code, error.param]).toEqual(['duplicate_key', 'stream']);
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
  it('is a few times that of JSON.parse for a small chat', () => {
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
    const body = bytes(JSON.stringify(chat));
    const often = (act: () => unknown) => () => {
      for (let n = 0; n < 5_000; n++) act();
    };
    const ratio = costBeside(
      often(() => scanJson(body)),
      often(() => JSON.parse(new TextDecoder().decode(body))),
    );
    expect(ratio).toBeLessThan(30);
  });

  it('is a few looks at each byte for 32 MiB of images', () => {
    const url = `data:image/png;base64,${'QUJD'.repeat(8 * 1024 * 1024)}`;
    const body = bytes(JSON.stringify({ messages: [{ content: [{ url }] }], model: 'm' }));
    const ratio = costBeside(
      () => scanJson(body),
      () => readOnce(body),
    );
    expect(ratio).toBeLessThan(20);
  });
});
