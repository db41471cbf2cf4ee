/** Parts of the clients besides the format: keys of either runtime, usage inside responses, model aliases. */
import { createCipheriv, randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { readAnswerUsage, UsageReader } from '../../../clients/seal/answer-usage.ts';
import { chunkKey } from '../../../clients/seal/chunk-key.ts';
import { sealedFetch } from '../../../clients/seal/index.ts';
import { withModelName } from '../../../clients/seal/model-name.ts';
import { padToSize, removePadding } from '../../../shared/seal/chunk-padding.ts';

it('Node’s own cipher and WebCrypto open the same chunks, and refuse the same ones', async () => {
  const [raw, nonce, aad] = [new Uint8Array(randomBytes(32)), new Uint8Array(randomBytes(12)), Buffer.from('final')];
  const cipher = createCipheriv('aes-256-gcm', raw, nonce);
  cipher.setAAD(aad);
  const sealed = Buffer.concat([cipher.update('words'), cipher.final(), cipher.getAuthTag()]);
  const keys = [await chunkKey(raw, null), await chunkKey(raw)];
  const kinds = keys.map((key) => key.open(nonce, aad, sealed) instanceof Promise);
  expect(kinds, 'one of each').toEqual([true, false]);
  for (const key of keys) {
    expect(Buffer.from(await key.open(nonce, aad, sealed)).toString()).toBe('words');
    const opened = async (given: Uint8Array, under: Uint8Array) => key.open(nonce, under, given);
    await expect(opened(sealed, Buffer.alloc(0))).rejects.toThrow();
    await expect(opened(sealed.subarray(1), aad)).rejects.toThrow();
    await expect(opened(Buffer.alloc(3), aad)).rejects.toThrow();
  }
});

it('padding that holds something is refused: it would be a channel that no check reads', () => {
  const plain = padToSize(Buffer.from('x'), 256);
  expect(Buffer.from(removePadding(plain)).toString()).toBe('x');
  plain[255] = 1;
  expect(() => removePadding(plain)).toThrow('the padding of a chunk must be zeros');
});

it('usage is read at an answer’s end, however it is cut, and not out of its words', () => {
  const openai =
    '{"choices":[{"message":{"content":"\\"usage\\":{\\"prompt_tokens\\":9}"}}],"usage":{"prompt_tokens":3,"completion_tokens":5}}';
  const anthropic =
    'event: message_delta\ndata: {"usage":{"cache_read_input_tokens":1,"input_tokens":4,"output_tokens":6}}\n\n';
  expect([readAnswerUsage(openai), readAnswerUsage(anthropic)]).toEqual([
    { prompt: 3, completion: 5 },
    { prompt: 4, completion: 6 },
  ]);
  expect(readAnswerUsage('{"usage":null}')).toEqual({ prompt: undefined, completion: undefined });
  const reader = new UsageReader();
  for (const piece of [`${'x'.repeat(40_000)}`, ...openai]) reader.push(Buffer.from(piece));
  expect(reader.said).toEqual({ prompt: 3, completion: 5 });
});

it('the model’s own name is written where the body names another, and nothing else is changed', () => {
  const body = Buffer.from(
    '{"n":12345678901234567890,"model" : "fast","messages":[{"content":"\\"model\\":\\"fast\\""}]}',
  );
  const clear = { path: '/v1/chat/completions', model: 'fast', stream: false, headers: [], body };
  const renamed = withModelName(clear, 'org/m', true);
  expect([renamed.model, Buffer.from(renamed.body).toString()]).toEqual([
    'org/m',
    '{"n":12345678901234567890,"model" : "org/m","messages":[{"content":"\\"model\\":\\"fast\\""}]}',
  ]);
  expect(() => withModelName(clear, 'org/m', false)).toThrow('without a signature');
  expect(withModelName(clear, 'fast', false)).toBe(clear);
});

it('who leaves while the nodes are asked for is not kept waiting', async () => {
  const left = new AbortController();
  let asked = 0;
  const silent = sealedFetch({ fetch: () => new Promise<never>(() => void asked++) });
  const init = { method: 'POST', body: '{"model":"m"}', signal: left.signal };
  const waiting = silent('http://gateway.test/v1/chat/completions', init);
  await expect.poll(() => asked).toBe(1);
  left.abort();
  await expect(waiting).rejects.toHaveProperty('name', 'AbortError');
  await expect(silent('http://gateway.test/v1/chat/completions', init)).rejects.toHaveProperty('name', 'AbortError');
});

it('a pin that is no key is told at once, and pinned providers alone are asked for', async () => {
  const pin = 'A'.repeat(43);
  expect(() => sealedFetch({ pins: { eth: `${pin}\n` } })).toThrow("pins: 'eth'");
  let url = '';
  const fetch = (input: Request | URL | string) => {
    url = String(input);
    return Promise.resolve(Response.json({ object: 'list', model: 'm', data: [] }));
  };
  const asking = sealedFetch({ pins: { eth: pin, psi: pin }, fetch });
  await expect(
    asking('http://gateway.test/v1/chat/completions', { method: 'POST', body: '{"model":"m"}' }),
  ).rejects.toThrow();
  expect(new URL(url).searchParams.getAll('provider')).toEqual(['eth', 'psi']);
});
