/** Headers inside responses: a lying node can give its client no more than an engine may. */
import { expect, it } from 'vitest';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';
import { SealOpener } from '../../../agent/seal/seal-opener.ts';
import { AnswerOpener } from '../../../clients/seal/answer-opener.ts';
import { seal } from '../../../clients/seal/seal-request.ts';
import { sealedFetch } from '../../../clients/seal/sealed-fetch.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { SEALED_TYPE } from '../../../shared/seal/hpke-suite.ts';
import { prependHead } from '../../../shared/seal/sealed-plaintext.ts';

const found = endpointById(1);
if (found === undefined) throw new Error('no chat endpoint');
const chat = found;

const lies: [string, string][] = [
  ['location', 'https://provider.example/v1/chat/completions'],
  ['set-cookie', 'a=b'],
  ['x-request-id', 'not-the-gateway-s'],
  ['content-type', 'application/json'],
];

it('no client is led elsewhere with its key, nor told what its gateway tells', async () => {
  const ring = new KeyRing(Date.now);
  const opener = new SealOpener(ring, Date.now);
  const { kid, publicKey, until } = ring.current;
  const listed = { v: 1, session: 's', provider: 'lab', kid, key: toBase64url(publicKey), until: until / 1000 };
  const gateway: typeof fetch = async (input, init) => {
    if (String(input).includes('/v1/otela/seal')) return Response.json({ object: 'list', model: 'm', data: [listed] });
    const headers = Object.entries(init?.headers ?? {});
    const body = new Uint8Array(init?.body as Uint8Array<ArrayBuffer>);
    const { sealer } = opener.open({ headers, endpoint: chat, streaming: false }, body);
    const frames = [sealer.chunk(prependHead({ status: 307, headers: lies }, Buffer.from('{}'))), sealer.final()];
    return new Response(Buffer.concat(frames), { headers: { 'content-type': SEALED_TYPE, 'x-request-id': 'r' } });
  };
  const answer = await sealedFetch({ fetch: gateway })(`https://gateway.example${chat.path}`, {
    method: 'POST',
    body: JSON.stringify({ model: 'm' }),
  });
  expect(answer.status).toBe(307);
  expect(Object.fromEntries(answer.headers)).toEqual({
    'content-type': 'application/json',
    'x-request-id': 'r',
    'x-otela-node': 's',
    'x-otela-provider': 'lab',
    'x-otela-sealed': 'registry',
  });
});

it('an agent seals nothing of its engine’s headers beside those', async () => {
  const ring = new KeyRing(Date.now);
  const { kid, publicKey, until } = ring.current;
  const node = { session: 's', provider: 'lab', mode: 'registry' as const, kid, key: new Uint8Array(publicKey), until };
  const clear = { path: chat.path, model: 'm', stream: false, headers: [], body: Buffer.from('{}') };
  const sealed = await seal(clear, [node], Date.now() / 1000);
  const headers = Object.entries(sealed.headers);
  const { sealer } = new SealOpener(ring, Date.now).open({ headers, endpoint: chat, streaming: false }, sealed.body);
  sealer.head(307, lies, false);
  const first = await new AnswerOpener(ReadableStream.from([sealer.final()]), sealed).next();
  expect(first).toMatchObject({ kind: 'head', head: { status: 307, headers: [['content-type', 'application/json']] } });
});

it('a response that no node sealed is cancelled, so that its connection is free', async () => {
  const ring = new KeyRing(Date.now);
  const { kid, publicKey, until } = ring.current;
  const node = { session: 's', provider: 'lab', mode: 'registry' as const, kid, key: new Uint8Array(publicKey), until };
  const clear = { path: chat.path, model: 'm', stream: true, headers: [], body: Buffer.from('{}') };
  const sealed = await seal(clear, [node], Date.now() / 1000);
  const cancelled = Promise.withResolvers<unknown>();
  const endless = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new Uint8Array(64).fill(255)),
    cancel: cancelled.resolve,
  });
  await expect(new AnswerOpener(endless, sealed).next()).rejects.toMatchObject({ code: 'not_opened' });
  await expect(cancelled.promise).resolves.toBeInstanceOf(Error);
});
