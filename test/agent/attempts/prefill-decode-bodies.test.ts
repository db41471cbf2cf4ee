import { describe, expect, it } from 'vitest';
import {
  decodeRequest,
  kvTransferParams,
  prefillRequest,
  sglangRequest,
} from '../../../agent/attempts/prefill-decode-bodies.ts';
import { parseEngineTarget } from '../../../agent/engine/engine-address.ts';

const json = (body: Buffer): unknown => JSON.parse(body.toString());

describe('what the engines of a pair are asked', () => {
  it.each(['{}', '{ }', '{"max_tokens":9}', '{"max_tokens":9}\n ', '{"stream":true,"min_tokens":5,"n":1 }'])(
    'appends to %s so that the last of two equal keys is ours',
    (body) => {
      expect(json(prefillRequest(Buffer.from(body)))).toMatchObject({ max_tokens: 1, min_tokens: 0, stream: false });
      expect(json(decodeRequest(Buffer.from(body), { remote_port: 1 }))).toMatchObject({
        kv_transfer_params: { remote_port: 1 },
      });
    },
  );

  it('leaves every byte of the rest: a seed of 64 bits keeps its digits', () => {
    const body = '{"seed":9223372036854775807,"a":"\\ud83d"}';
    expect(decodeRequest(Buffer.from(body), null).toString()).toBe(
      '{"seed":9223372036854775807,"a":"\\ud83d","kv_transfer_params":null}',
    );
  });

  it.each(['', '   ', '[]', 'null', '"}" '])('leaves %j, which is no object, for the engine to refuse', (body) => {
    expect(decodeRequest(Buffer.from(body), null).toString()).toBe(body);
  });

  it.each(['{"a":{"b":1}', '{"a":"}', '{"a":1,}', '{,}', '{"a":"\\}', '{"a":1}}'])(
    'does not make JSON of %s, which is none',
    (body) => {
      expect(() => json(decodeRequest(Buffer.from(body), null))).toThrow();
      expect(() => json(prefillRequest(Buffer.from(body)))).toThrow();
    },
  );

  it('names a room with all its digits', () => {
    const room = { host: '[::1]', port: 8998, room: 9223372036854775807n };
    expect(sglangRequest(Buffer.from('{"a":1}'), room).toString()).toBe(
      '{"a":1,"bootstrap_host":"[::1]","bootstrap_port":8998,"bootstrap_room":9223372036854775807}',
    );
  });

  it.each(['', 'x', '[]', '{}', '{"kv_transfer_params":null}', '{"kv_transfer_params":[1]}'])(
    'finds nothing to hand over in %j',
    (answer) => {
      expect(kvTransferParams(Buffer.from(answer))).toBeUndefined();
    },
  );
});

describe('the address of a prefill engine', () => {
  const decode = { url: 'http://127.0.0.1:8200' };

  it('is read as that of an engine is, and shares its key', () => {
    expect(parseEngineTarget({ ...decode, key: 'k', prefillUrls: ['http://10.0.0.1:8100/v1'] })?.prefills).toEqual([
      { origin: 'http://10.0.0.1:8100', pathPrefix: '', key: 'k', bootstrapPort: 8998 },
    ]);
  });

  it('is refused if it is the decode engine, or if there is none', () => {
    expect(() => parseEngineTarget({ ...decode, prefillUrls: ['http://127.0.0.1:8200/v1'] })).toThrow(
      'the engine itself',
    );
    expect(() => parseEngineTarget({ prefillUrls: ['http://127.0.0.1:8100'] })).toThrow('needs a decode engine');
    expect(() => parseEngineTarget({ ...decode, prefillUrls: ['ftp://x'] })).toThrow('--prefill-url');
    const twice = ['http://10.0.0.1:8100', 'http://10.0.0.1:8100/v1'];
    expect(() => parseEngineTarget({ ...decode, prefillUrls: twice })).toThrow('twice');
    const many = Array.from({ length: 65 }, (_, n) => `http://10.0.0.1:${9_000 + n}`);
    expect(() => parseEngineTarget({ ...decode, prefillUrls: many })).toThrow('at most 64');
  });
});
