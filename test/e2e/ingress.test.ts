/** A client next to an agent: any OpenAI client on the agent's own endpoint, with the gateway killed. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { askIngress, IngressAgent } from '../support/ingress.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { dial } from '../support/raw.ts';
import { chatBody, envelopeOf, MODEL } from '../support/test-cluster.ts';

afterEach(endAll);

const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number() })) });

const MESSAGES = [{ role: 'user' as const, content: 'Say something.' }];

async function engine(): Promise<Engine> {
  const started = await startEngine({ models: [MODEL] });
  atEnd(() => started.close());
  return started;
}

it('the OpenAI client goes on through a killed gateway, a lost engine and a killed agent; usage arrives when the gateway is back', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const engines = [await engine(), await engine(), await engine()];
  const [one, two, three] = engines;
  const first = await IngressAgent.start({ gateway, token, engineUrl: one?.url ?? '' });
  const [second, third, asking] = await Promise.all([
    IngressAgent.start({ gateway, token, engineUrl: two?.url ?? '', peer: first }),
    IngressAgent.start({ gateway, token, engineUrl: three?.url ?? '', peer: first }),
    IngressAgent.start({ gateway, token, peer: first }),
  ]);
  await asking.knows(3);
  await gateway.kill9();

  const { url, key } = await asking.door();
  const client = new OpenAI({ baseURL: url, apiKey: key, maxRetries: 0 });
  let answered = 0;
  const ask = async () => {
    const unary = await client.chat.completions.create({ model: MODEL, messages: MESSAGES });
    const stream = await client.chat.completions.create({ model: MODEL, messages: MESSAGES, stream: true });
    let text = '';
    for await (const event of stream) text += event.choices[0]?.delta.content ?? '';
    expect(text).toBe(unary.choices[0]?.message.content);
    answered += 2;
  };
  for (let n = 0; n < 8; n++) await ask();
  for (const { requests } of engines) expect(requests.length).toBeGreaterThan(0);
  expect((await client.models.list()).data.map(({ id }) => id)).toEqual([MODEL]);

  await one?.close(); // its agent is still there, and reports it
  for (let n = 0; n < 6; n++) await ask();
  second.process.signal('SIGKILL');
  for (let n = 0; n < 6; n++) await ask();
  expect(
    (await client.chat.completions.create({ model: MODEL, messages: MESSAGES }).withResponse()).response.headers.get(
      'x-otela-node',
    ),
  ).toBe((await third.status()).session);
  answered++;

  await eventually('all to be counted', 10_000, async () =>
    (await asking.usageWaiting()) >= answered ? true : undefined,
  );
  await gateway.restart();
  await eventually('the usage to be stored', 30_000, async () =>
    (await asking.usageWaiting()) === 0 ? true : undefined,
  );
  await eventually('the totals', 15_000, async () => {
    const { data } = totalsSchema.parse(await gateway.admin('GET', 'usage?group_by=key&key=ingress:lab'));
    return (data[0]?.requests ?? 0) >= answered ? true : undefined;
  });
});

it('nobody is asked who is not trusted, and nobody answers whom it does not serve', async () => {
  const gateway = await Gateway.start();
  const [lab, other] = [await gateway.createJoinToken('lab'), await gateway.createJoinToken('other')];
  const [one, two] = [await engine(), await engine()];
  const first = await IngressAgent.start({
    gateway,
    token: lab,
    engineUrl: one.url,
    args: ['--serve-to', 'lab,other'],
  });
  const peer = first;
  const [abroad, cautious, open, wide] = await Promise.all([
    IngressAgent.start({ gateway, token: other, engineUrl: two.url, peer }),
    IngressAgent.start({ gateway, token: other, peer }),
    IngressAgent.start({ gateway, token: lab, peer, args: ['--trust', 'other'] }),
    IngressAgent.start({ gateway, token: other, peer, args: ['--trust', 'lab,other'] }),
  ]);
  await Promise.all([cautious, open, wide].map((agent) => agent.knows(2)));
  await gateway.kill9();

  for (let n = 0; n < 4; n++) {
    const own = await askIngress(await cautious.door(), '/chat/completions', chatBody());
    expect([own.status, own.headers.get('x-otela-provider')]).toEqual([200, 'other']);
  }
  expect(one.requests.map(({ method, url }) => `${method} ${url}`)).toEqual([]);
  const refused = await askIngress(await open.door(), '/chat/completions', chatBody());
  expect(refused.status).toBe(503);
  expect(await envelopeOf(refused)).toMatchObject({
    code: 'no_capacity',
    message: expect.stringContaining('--serve-to'),
  });
  const headers = { 'x-otela-trusted-providers': 'lab' };
  const served = await askIngress(await wide.door(), '/chat/completions', chatBody(), { headers });
  expect([served.status, served.headers.get('x-otela-node')]).toEqual([200, (await first.status()).session]);
  const narrowed = await askIngress(await cautious.door(), '/chat/completions', chatBody(), { headers });
  expect([narrowed.status, (await envelopeOf(narrowed)).code]).toEqual([403, 'no_trusted_provider']);
  expect(await abroad.usageWaiting()).toBe(0);
});

it('a stranger on the port of the ingress learns nothing', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const one = await engine();
  const first = await IngressAgent.start({ gateway, token, engineUrl: one.url });
  const asking = await IngressAgent.start({ gateway, token, peer: first });
  await asking.knows(1);
  await gateway.kill9();
  const { url, key } = await asking.door();

  for (const path of ['/models', '/registry/nodes', '/chat/completions', '/../admin/keys', '/%2e%2e/x']) {
    const response = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}x` } });
    expect([path, response.status]).toEqual([path, 401]);
    expect(await response.text()).not.toContain('stand-in');
  }
  const garbage = await dial(url);
  garbage.on('error', () => {}).write('\x16\x03\x01\x02\x00 no HTTP at all\r\n\r\n');
  const answer = await new Promise<string>((resolve) => {
    let text = '';
    garbage.on('data', (piece: Buffer) => {
      text += piece.toString();
    });
    garbage.on('close', () => resolve(text));
  });
  expect(answer).toMatch(/^(HTTP\/1\.1 400 Bad Request\r\n[\s\S]*)?$/);
});

it('usage that an agent could not deliver is delivered by the next one of its user', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const one = await engine();
  const state = await temporaryDirectory('otela-state');
  const first = await IngressAgent.start({ gateway, token, engineUrl: one.url, state });
  await first.knows(1);
  await gateway.kill9();
  for (let n = 0; n < 3; n++)
    expect((await askIngress(await first.door(), '/chat/completions', chatBody())).status).toBe(200);
  await eventually('all to be counted', 5_000, async () => ((await first.usageWaiting()) === 3 ? true : undefined));
  first.process.signal('SIGTERM');
  expect(await first.process.end(20_000)).toMatchObject({ code: 143 });
  const [file = ''] = readdirSync(join(state, 'otela-agent', 'usage'));
  expect(statSync(join(state, 'otela-agent', 'usage', file)).mode & 0o777).toBe(0o600);

  await gateway.restart();
  await IngressAgent.start({ gateway, token, engineUrl: one.url, state });
  await eventually('the totals', 20_000, async () => {
    const { data } = totalsSchema.parse(await gateway.admin('GET', 'usage?group_by=key&key=ingress:lab'));
    return data[0]?.requests === 3 ? true : undefined;
  });
});
