/** Events reach the operator's webhooks: signed, once, and without text of requests. */
import { createHmac, randomBytes } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { identityEnvironment, openAsker } from '../../support/access-requests.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';

const KEY = randomBytes(32);
const SECRET = `whsec_${KEY.toString('base64')}`;
const eventSchema = z.object({
  type: z.string(),
  timestamp: z.iso.datetime(),
  data: z.record(z.string(), z.unknown()),
});

interface Received {
  id: string;
  path: string | undefined;
  isSigned: boolean;
  event: z.infer<typeof eventSchema>;
}

/** Writes until the client closes the connection. */
function endless(response: ServerResponse): void {
  if (response.destroyed) return;
  if (response.write('x'.repeat(65_536))) setImmediate(endless, response);
  else response.once('drain', () => endless(response));
}

let gateway: Gateway;
let request: (model: string) => Promise<string>;
let hook = '';
/** Statuses of the next responses; afterwards 204. ENDLESS: a response without an end. */
let statuses: number[] = [];
const ENDLESS = 0;
let closedEndless = 0;
const received: Received[] = [];

beforeAll(async () => {
  const server = createServer(async (request, response) => {
    const body = await text(request);
    const id = String(request.headers['webhook-id']);
    const signed = `${id}.${request.headers['webhook-timestamp']}.${body}`;
    const signature = `v1,${createHmac('sha256', KEY).update(signed).digest('base64')}`;
    const isSigned = request.headers['webhook-signature'] === signature;
    received.push({ id, path: request.url, isSigned, event: eventSchema.parse(JSON.parse(body)) });
    const status = statuses.shift() ?? 204;
    if (status !== ENDLESS) return response.writeHead(status, { location: '/elsewhere' }).end();
    response.writeHead(200).on('close', () => closedEndless++);
    endless(response);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(() => void server.close());
  hook = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const { port, env } = await identityEnvironment();
  const secrets = JSON.stringify({ [hook]: SECRET, [`${hook}/all`]: SECRET });
  gateway = await Gateway.start({ env: { ...env, WEBHOOK_SECRETS: secrets } });
  request = await openAsker(gateway, port);
  await look();
});
afterAll(endAll);
beforeEach(() => {
  received.length = 0;
  statuses = [];
});

/** A change of the setting makes the gateway look for events now. */
const look = (events?: string[]) =>
  gateway.admin('PATCH', 'settings', { notifications: { webhooks: [{ url: hook, ...(events && { events }) }] } });
const first = () => eventually('a webhook', 30_000, async () => received[0]);

it('a request for access is sent once and signed, without its text, and so is the decision', async () => {
  const id = await request('org/model-a');
  await look();
  expect(await first()).toMatchObject({
    ...{ id: `access.requested/${id}`, path: '/hook', isSigned: true },
    event: { type: 'access.requested', data: { request_id: id, model: 'org/model-a', project_id: null } },
  });
  expect(JSON.stringify(received)).not.toContain('secret');
  await gateway.admin('PATCH', `access-requests/${id}`, { status: 'refused' });
  await look();
  await eventually('the decision', 30_000, async () => received.find(({ event }) => event.type === 'access.decided'));
  await look();
  const decided = received.filter(({ id: one }) => one.endsWith(id));
  expect(decided.map(({ event }) => event.type)).toEqual(['access.requested', 'access.decided']);
});

it('a webhook that fails gets the same event again later, and no redirect is followed', async () => {
  statuses = [302, 500];
  const id = await request('org/model-b');
  await look();
  await first();
  expect(received).toMatchObject([{ id: `access.requested/${id}`, path: '/hook' }]);
  // The next try is after half a minute.
  await look();
  const again = await eventually('the second try', 90_000, async () => received[1]);
  expect(again).toMatchObject({ id: `access.requested/${id}`, path: '/hook', isSigned: true });
});

it('a response without an end accepts the event and is cut', async () => {
  statuses = [ENDLESS];
  const id = await request('org/model-c');
  await look();
  await first();
  await eventually('the end of the response', 30_000, async () => (closedEndless > 0 ? true : undefined));
  await look();
  expect(received.map((one) => one.id)).toEqual([`access.requested/${id}`]);
});

it('a webhook gets only the events that it names', async () => {
  const id = await request('org/model-d');
  const webhooks = [{ url: hook, events: ['node.lost'] }, { url: `${hook}/all` }];
  await gateway.admin('PATCH', 'settings', { notifications: { webhooks } });
  await first();
  // Both deliveries would be created together, and sent at the same time.
  await gateway.admin('PATCH', 'settings', { notifications: { webhooks } });
  await gateway.admin('GET', 'settings');
  expect(received).toMatchObject([{ id: `access.requested/${id}`, path: '/hook/all' }]);
});

it('a webhook without a secret, with a plain address or twice is refused', async () => {
  const set = (...webhooks: object[]) => gateway.admin('PATCH', 'settings', { notifications: { webhooks } });
  await expect(set({ url: 'https://hooks.example.org/' })).rejects.toThrow('has no secret');
  await expect(set({ url: 'http://hooks.example.org/' })).rejects.toThrow('must be an https URL');
  await expect(set({ url: hook }, { url: hook })).rejects.toThrow('must be different URLs');
  await expect(set({ url: hook, events: ['prompt'] })).rejects.toThrow('events');
});
