/**
 * Three gateways of one institution: a primary restored from an old backup, replayed old statements, a follower that
 * sends nonsense.
 */
import { cpSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { epochAnswerSchema, recordsAnswerSchema } from '../../../gateway/hosts/node/replication/messages.ts';
import { SignedGatewayClient } from '../../../gateway/hosts/node/replication/signed-gateway-client.ts';
import {
  type GatewayIdentity,
  SIGNED_HEADER,
  signRequest,
} from '../../../gateway/hosts/node/replication/signed-request.ts';
import { GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually, freePort, temporaryDirectory } from '../../support/processes.ts';
import { cli, startFollower } from './support.ts';

afterEach(endAll);

const statusSchema = z.looseObject({
  role: z.string(),
  epoch: z.number(),
  first: z.string().optional(),
  connected: z.boolean().optional(),
  followers: z.array(z.object({ connected: z.boolean() })).optional(),
});
const statusOf = async (gateway: Gateway) => statusSchema.parse(await gateway.admin('GET', 'gateways'));
const follows = (gateway: Gateway, first: Gateway, epoch: number) =>
  eventually(`${gateway.url} follows ${first.url}`, 40_000, async () => {
    const status = await statusOf(gateway);
    if (status.first === first.url && status.epoch === epoch && status.connected === true) return true;
    throw new Error(JSON.stringify(status));
  });
const delegated = z.object({ key: z.string(), certificate: z.string() });

/** Another gateway of the institution, in an attacker's hands. */
function stolenIdentity(first: Gateway): GatewayIdentity {
  const key = delegated.parse(JSON.parse(cli('issuer', 'delegate', '--data', first.data)));
  return { key, certificate: new GatewayIssuer(key).certificate, revoked: new Set() };
}

async function promote(gateway: Gateway, root: string): Promise<void> {
  cli('promote', '--data', gateway.data, '--url', gateway.url, '--root-key', root);
  await eventually('it is first', 20_000, async () => ((await statusOf(gateway)).role === 'first' ? true : undefined));
}

test('a first from an old backup finds the gateway that was promoted since, whatever old statements it is told', async () => {
  const port = await freePort();
  const first = await Gateway.start({ port, args: ['--url', `http://127.0.0.1:${port}`] });
  const [one, two] = await Promise.all([startFollower(first), startFollower(first)]);
  await eventually('both follow', 20_000, async () => {
    const { followers = [] } = await statusOf(first);
    return followers.length === 2 && followers.every(({ connected }) => connected) ? true : undefined;
  });
  const identity = stolenIdentity(first);
  const root = join(first.data, 'issuer/root.key');
  await first.kill9();
  const backup = await temporaryDirectory('otela-backup');
  cpSync(first.data, backup, { recursive: true });

  await promote(one, root);
  await follows(two, one, 1);
  const { statement: oldWord } = z
    .looseObject({ statement: z.string() })
    .parse(JSON.parse(readFileSync(join(one.data, 'role.json'), 'utf8')));
  await promote(two, root);
  await follows(one, two, 2);

  const restored = await Gateway.start({ data: backup, port, args: ['--url', first.url] });
  const link = new SignedGatewayClient(identity);
  atEnd(() => link.close());
  const tell = (statement: string) =>
    link.ask(new URL(restored.url), '/gateway/epoch', { statement }, epochAnswerSchema, 10_000);
  // The restored primary asks the followers that it remembers.
  await follows(restored, two, 2);
  expect((await tell(oldWord)).answer.epoch).toBe(2);
  expect((await statusOf(restored)).first).toBe(two.url);

  // A primary with a new key is trusted, and a follower with a new key is not counted twice.
  for (const gateway of [one, two]) {
    const here = join(gateway.data, 'issuer/root.key');
    cpSync(root, here);
    cli('issuer', 'rotate', '--data', gateway.data);
    rmSync(here);
    await gateway.stop();
    // Started without --follow, because a promoted gateway refuses this flag.
    if (gateway === two) await Gateway.start({ data: two.data, port: two.port, args: ['--url', two.url] });
    else await gateway.restart();
  }
  await follows(one, two, 2);
  await eventually('two followers, and none of a former key', 20_000, async () =>
    (await statusOf(two)).followers?.length === 2 ? true : undefined,
  );

  // A replayed message of a silent follower does not make it look connected.
  const body = Buffer.from(JSON.stringify({ url: 'http://ghost.example', version: '1', cursor: null, waiting: 0 }));
  const { header } = signRequest(identity, { about: 'POST /gateway/follow', body }, Math.floor(Date.now() / 1000));
  const say = async () =>
    (await fetch(`${two.url}/gateway/follow`, { method: 'POST', headers: { [SIGNED_HEADER]: header }, body })).status;
  expect([await say(), await say()]).toEqual([200, 409]);

  // Nonsense is refused, and the gateway continues.
  const hand = (item: object) =>
    link.ask(new URL(two.url), '/gateway/records', { items: [item] }, recordsAnswerSchema, 10_000);
  for (const item of [
    { position: 1, kind: 'usage', name: '../../accounts', body: '[]' },
    { position: 1, kind: 'usage', name: '2026-11-25T09', body: 'no JSON' },
    { position: 1, kind: 'usage', name: '2026-11-25T09', body: '[null]' },
    { position: 1, kind: 'usage', name: '2026-11-25T09', body: '{}' },
    { position: 1, kind: 'settle', name: 'key:x', body: '{"source":1,"items":7}' },
    { position: 1, kind: 'months', name: 'key:x', body: '{"subject":"key:x","month":"soon","counts":[]}' },
    { position: -1, kind: 'usage', name: '2026-11-25T09', body: '[]' },
  ])
    await expect(hand(item)).rejects.toThrow();
  await expect(
    link.ask(new URL(two.url), '/gateway/limits', { subject: 'x', method: 'settle', args: [] }, z.unknown(), 10_000),
  ).rejects.toThrow(/400/);
  expect((await statusOf(two)).role).toBe('first');
  expect((await hand({ position: 9, kind: 'usage', name: '2026-11-25T09', body: '[]' })).answer.position).toBe(9);
});
