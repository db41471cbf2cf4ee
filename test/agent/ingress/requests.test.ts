import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, patternSha256, patternStream, raw } from '../../support/raw.ts';
import { chatBody, envelopeOf, MODEL } from '../../support/test-cluster.ts';
import { Village, type Villager } from './village.ts';

afterEach(endAll);

async function twoHouses(): Promise<{ here: Villager; there: Villager }> {
  const village = new Village();
  return {
    here: await village.add({ engine: false }),
    there: await village.add({ engine: { apiKey: 'engine-secret' } }),
  };
}

it('the key is in a file that only its user may read', async () => {
  const { here } = await twoHouses();
  expect(statSync(here.ingress.keyFile ?? '').mode & 0o777).toBe(0o600);
  expect(here.log.join('\n')).not.toContain(here.key);
});

it("the client's key and cookies stay here; the engine's key is added where the engine is", async () => {
  const { here, there } = await twoHouses();
  const headers = {
    cookie: 'a=b',
    'x-api-key': 'sk-mine',
    'x-forwarded-for': '10.1.2.3',
    traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  };
  expect((await here.ask('/chat/completions', chatBody(), { headers })).status).toBe(200);
  const [seen] = there.engine?.requests ?? [];
  expect(seen?.headers.authorization).toBe('Bearer engine-secret');
  expect(seen?.headers.traceparent).toBe('00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01');
  expect(JSON.stringify(seen?.headers)).not.toMatch(/sk-mine|sk-otela|a=b|10\.1\.2\.3/);
});

it("a client's request id is kept, and two that send the same do not meet", async () => {
  const { here } = await twoHouses();
  const headers = { 'x-request-id': 'mine-1' };
  const answers = await Promise.all(
    [5, 9].map((tokens) => here.ask('/chat/completions', chatBody({ tokens }, { stream: true }), { headers })),
  );
  expect(answers.map((answer) => answer.headers.get('x-request-id'))).toEqual(['mine-1', 'mine-1']);
  const [short = '', long = ''] = await Promise.all(answers.map((answer) => answer.text()));
  expect(long.split('\n\n').length).toBeGreaterThan(short.split('\n\n').length);
});

it("Anthropic's clients find the request's id where they look for it, also of an error", async () => {
  const { here } = await twoHouses();
  const [good, bad] = [chatBody({}, { max_tokens: 2 }), { model: 'unheard-of' }];
  for (const [body, status] of [
    [good, 200],
    [bad, 404],
  ] as const) {
    const { headers, status: seen } = await here.ask('/messages', body);
    expect([seen, headers.get('request-id')]).toEqual([status, headers.get('x-request-id')]);
  }
});

it.each([
  ['a body that is no JSON', '{', 400, 'invalid_json'],
  ['a key that stands twice', `{"model":"${MODEL}","model":"other","messages":[]}`, 400, 'duplicate_key'],
  ['no model', '{"messages":[]}', 400, 'invalid_request'],
  ['a model that nobody ever served', '{"model":"unheard-of","messages":[]}', 404, 'model_not_found'],
])('%s is refused here', async (_, body, status, code) => {
  const { here, there } = await twoHouses();
  const response = await here.ask('/chat/completions', body);
  expect(response.status).toBe(status);
  expect((await envelopeOf(response)).code).toBe(code);
  expect(there.engine?.requests.length).toBe(0);
});

it('unknown paths and other methods are told so', async () => {
  const { here } = await twoHouses();
  expect((await envelopeOf(await here.ask('/nothing', {}))).code).toBe('not_found');
  const get = await here.ask('/chat/completions');
  expect(get.status).toBe(405);
  expect(get.headers.get('allow')).toBe('POST');
  for (const path of ['/models', '/registry/nodes'])
    expect((await here.ask(path, undefined, { method: 'DELETE' })).status).toBe(405);
});

it('a body of 30 MiB arrives whole, one of 40 MiB is refused, with the reason', async () => {
  const { here, there } = await twoHouses();
  const text = 'x'.repeat(30 * 1024 * 1024);
  const body = JSON.stringify({ ...chatBody(), text });
  expect((await here.ask('/chat/completions', body)).status).toBe(200);
  expect(there.engine?.requests[0]?.bodySha256).toBe(createHash('sha256').update(body).digest('hex'));
  const refused = await here.ask(
    '/chat/completions',
    JSON.stringify({ ...chatBody(), text: 'x'.repeat(40 * 1024 * 1024) }),
  );
  expect(refused.status).toBe(413);
  expect((await envelopeOf(refused)).code).toBe('request_too_large');
});

it('with x-otela-model a body of any size streams through without being kept', async () => {
  const { here, there } = await twoHouses();
  const size = 100 * 1024 * 1024;
  const answer = await raw(`${here.url}/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${here.key}`,
      'content-type': 'application/octet-stream',
      'x-otela-model': MODEL,
    },
    body: patternStream(size),
  });
  const [seen] = there.engine?.requests ?? [];
  expect(answer.status).toBe(400); // the engine expected JSON
  expect(seen?.bodyBytes).toBe(size);
  expect(seen?.bodySha256).toBe(patternSha256(size));
});

it('a form of the audio endpoints is passed on as it came', async () => {
  const { here, there } = await twoHouses();
  const form = new FormData();
  form.set('model', MODEL);
  form.set('file', new Blob([new Uint8Array(100_000)]), 'speech.wav');
  const response = await fetch(`${here.url}/audio/transcriptions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${here.key}` },
    body: form,
  });
  expect(response.status).toBe(200);
  expect(there.engine?.requests[0]?.url).toBe('/v1/audio/transcriptions');
});

it('usage that the client did not ask for is asked of the engine and does not reach the client', async () => {
  const { here, there } = await twoHouses();
  const text = await (await here.ask('/chat/completions', chatBody({ tokens: 6 }, { stream: true }))).text();
  expect(text).not.toContain('"usage":{');
  expect(there.engine?.requests[0]?.bodyStart).toContain('include_usage');
  expect((await here.accounted(1))[0]).toMatchObject({ completion: 6, estimated: false });
});

it('the registry is shown with its filters, unchanged answers are 304', async () => {
  const { here, there } = await twoHouses();
  const response = await here.ask(`/registry/nodes?model=${MODEL}`);
  const body: unknown = await response.json();
  expect(body).toMatchObject({ object: 'list', data: [{ session: there.session, provider: 'lab', state: 'SERVING' }] });
  const tag = response.headers.get('etag') ?? '';
  const again = await here.ask('/registry/nodes', undefined, { headers: { 'if-none-match': tag } });
  expect(again.status).toBe(304);
  const head = await here.ask('/registry/models', undefined, { method: 'HEAD' });
  expect([head.status, await head.text()]).toEqual([200, '']);
  expect((await envelopeOf(await here.ask('/registry/nodes?colour=red'))).code).toBe('invalid_requirement');
  expect((await here.ask(`/models/${encodeURIComponent(MODEL)}`)).status).toBe(200);
});

it('changes of the registry are streamed', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  const response = await here.ask('/registry/nodes/stream');
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader?.read())?.value).toContain('event: snapshot');
  village.publish({ ...here.entry, state: 'DOWN', version: 2 });
  expect((await reader?.read())?.value).toMatch(/^event: node\n[\s\S]*"state":"DOWN"/);
  await reader?.cancel();
});

it('a stranger that sends for ever is not read for ever', async () => {
  const { here } = await twoHouses();
  const sent = await new Promise<number>((resolve) => {
    const client = httpRequest(`${here.url}/chat/completions`, { method: 'POST' });
    const endless = patternStream(Number.MAX_SAFE_INTEGER);
    let bytes = 0;
    endless.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
    const over = () => {
      endless.destroy();
      resolve(bytes);
    };
    client.on('error', over).on('close', over);
    endless.pipe(client);
  });
  expect(sent).toBeLessThan(16 * 1024 * 1024);
});

it('unauthenticated clients that hold connections open keep no other client away', async () => {
  const { here } = await twoHouses();
  const base = here.url.replace(/\/v1$/, '');
  const agent = new Agent({ keepAlive: true });
  const models = () =>
    new Promise<number>((resolve, reject) => {
      const headers = { authorization: `Bearer ${here.key}` };
      httpRequest(`${here.url}/models`, { agent, headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      })
        .on('error', reject)
        .end();
    });
  expect(await models()).toBe(200);
  const held = await Promise.all(Array.from({ length: 300 }, () => dial(base)));
  for (const socket of held) socket.on('error', () => {}).write('POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n');
  await eventually('the first ones to be let go', 5_000, () =>
    held.filter(({ closed }) => closed).length >= 172 ? true : undefined,
  );
  expect(await models()).toBe(200); // on its existing connection
  expect((await here.ask('/chat/completions', chatBody())).status).toBe(200); // and on a new one
  for (const socket of held) socket.destroy();
  agent.destroy();
});

it('a body that comes byte by byte is as good as any', async () => {
  const { here, there } = await twoHouses();
  const text = JSON.stringify({ ...chatBody(), text: 'x'.repeat(100_000) });
  const socket = await dial(here.url);
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${here.key}\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n`;
  socket.write(`${head}${[...text].map((letter) => `1\r\n${letter}\r\n`).join('')}0\r\n\r\n`);
  const [answer] = await once(socket, 'data');
  expect(String(answer)).toMatch(/^HTTP\/1\.1 200 OK/);
  expect(there.engine?.requests[0]?.bodyBytes).toBe(text.length);
  socket.destroy();
});

it.each([
  ['one that is kept', 500, ''],
  ['one that streams to its node', 2 * 1024 * 1024, `x-otela-model: ${MODEL}\r\n`],
])('a body that drips is given up, %s, and its connection ends', async (_, bytes, header) => {
  const village = new Village();
  const here = await village.add({ engine: false, bodyStallMs: 1_000 });
  await village.add();
  const socket = await dial(here.url);
  const ended = once(
    socket.on('error', () => {}),
    'close',
  );
  let text = '';
  socket.on('data', (piece) => {
    text += piece;
  });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${here.key}\r\n${header}`;
  socket.write(`${head}content-length: ${bytes}\r\ncontent-type: application/json\r\n\r\n{"model":"${MODEL}"`);
  const drops = setInterval(() => socket.write(' '), 100);
  await ended;
  clearInterval(drops);
  expect(text).toMatch(/^HTTP\/1\.1 408 /);
  expect(text).toContain('Less than 500 bytes per second');
});

it('a new session of this agent goes on with its engine; what the former one had begun is finished', async () => {
  const village = new Village();
  const here = await village.add();
  const begun = await here.ask('/chat/completions', chatBody({ tokens: 20, tokensPerSecond: 40 }, { stream: true }));
  const former = here.session;
  village.publish({ ...here.entry, state: 'LEFT' });
  here.session = 'q'.repeat(26);
  village.publish({ ...here.entry, session: here.session });
  const next = await here.ask('/chat/completions', chatBody());
  expect([begun.headers.get('x-otela-node'), next.headers.get('x-otela-node')]).toEqual([former, here.session]);
  expect(await begun.text()).toMatch(/\[DONE\]\n\n$/);
  expect((await here.accounted(2)).every(({ estimated }) => !estimated)).toBe(true);
});
