/** A follower has everything that it needs to serve, serves without the primary, and sends its records over once. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';
import { asked, booked, chat, cli, openPair } from './support.ts';

afterEach(endAll);

test('an agent that joined the first alone serves a follower that comes later; keys of the first work there, revocations within 5 s', async () => {
  const { first, follower, key } = await openPair({ agent: 'before' });
  expect(await asked(follower, key)).toBe(200);
  const later = await first.createKey('later');
  await eventually('a new key at the follower', 5_000, async () =>
    (await asked(follower, later)) === 200 ? true : undefined,
  );

  const { data } = (await first.admin('GET', 'keys')) as { data: { id: string; name: string }[] };
  const id = data.find(({ name }) => name === 'later')?.id ?? '';
  await first.admin('DELETE', `keys/${id}`);
  await eventually('the revoked key at the follower', 5_000, async () =>
    (await asked(follower, later)) === 401 ? true : undefined,
  );

  const refused = await fetch(`${follower.url}/admin/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${follower.adminKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'elsewhere' }),
  });
  expect(refused.status).toBe(503);
  expect(await refused.text()).toContain(first.url);
  expect(cli('gateways', 'list', '--url', first.url, '--key-file', `${first.data}/admin.key`)).toMatch(
    /primary\s+epoch 0\n.*connected/,
  );
});

test('the follower serves while the first is away, and hands its records over once', async () => {
  const { first, follower, key } = await openPair();
  for (let n = 0; n < 3; n++) expect(await asked(first, key)).toBe(200);
  for (let n = 0; n < 4; n++) expect(await asked(follower, key)).toBe(200);
  await eventually('the records of both at the first', 15_000, async () =>
    (await booked(first)) === 7 ? true : undefined,
  );
  const answer = await chat(follower, key, { tokens: 2 });
  await answer.text();
  const story = await eventually('its record at the first', 15_000, () =>
    first.admin('GET', `requests/${answer.headers.get('x-request-id')}`).catch(() => undefined),
  );
  expect(JSON.stringify(story)).toContain(`a follower answered the request; ask ${follower.url}`);
  await expect(follower.admin('GET', 'requests/no-such-request')).rejects.toThrow(`ask ${first.url}`);

  await first.kill9();
  for (let n = 0; n < 5; n++) expect(await asked(follower, key)).toBe(200);
  // A restart of the follower loses none of the waiting records. It starts without the primary.
  await eventually('five wait', 10_000, async () => {
    const status = (await follower.admin('GET', 'gateways')) as { waiting_records: number };
    return status.waiting_records >= 1 ? true : undefined;
  });
  await follower.kill9();
  await follower.restart();
  await follower.serving(1);
  expect(await asked(follower, key)).toBe(200);

  await first.restart();
  await eventually('all records at the first', 20_000, async () => ((await booked(first)) === 14 ? true : undefined));
  await eventually('nothing waits', 10_000, async () => {
    const status = (await follower.admin('GET', 'gateways')) as { waiting_records: number };
    return status.waiting_records === 0 ? true : undefined;
  });
  expect(await booked(first)).toBe(14);
});

test('a follower that has not heard from the first for --max-stale serves nobody, and does again when it is back', async () => {
  const { first, follower, key } = await openPair({ followerArgs: ['--max-stale', '3s'] });
  expect(await asked(follower, key)).toBe(200);
  await first.stop();
  const refused = await eventually('a refusal', 10_000, async () => {
    const response = await chat(follower, key, { tokens: 1 });
    return response.status === 503 ? response : undefined;
  });
  expect(await refused.json()).toMatchObject({ error: { code: 'server_is_overloaded' } });
  // Other spellings of the same path, which fetch would normalize.
  for (const path of ['/./v1/models', '/%76%31/models', `${follower.url}/v1/models`]) {
    const asking = request(follower.url, { path, headers: { authorization: `Bearer ${key}` } }).end();
    const [answer] = (await once(asking, 'response')) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode, path).toBe(503);
  }
  await first.restart();
  await eventually('service again', 15_000, async () => ((await asked(follower, key)) === 200 ? true : undefined));
});

test('a follower whose clock was fast when it last heard from the first is not young for longer once it is right', async () => {
  const clock = pathToFileURL(join(ROOT, 'test/support/clock-offset.ts')).href;
  const env = { NODE_OPTIONS: `--import=${clock}`, CLOCK_OFFSET_MS: '600000' };
  const { first, follower, key } = await openPair({ followerArgs: ['--max-stale', '3s'], followerEnv: env });
  await Promise.all([first.stop(), follower.stop()]);
  env.CLOCK_OFFSET_MS = '0';
  await follower.restart();
  await eventually('a refusal', 20_000, async () =>
    (await (await chat(follower, key, { tokens: 1 })).text()).includes('received no data from') ? true : undefined,
  );
});

test('without --max-stale a follower serves for 24 h after it last heard from the first, and no longer', async () => {
  const clock = pathToFileURL(join(ROOT, 'test/support/clock-offset.ts')).href;
  const env = { NODE_OPTIONS: `--import=${clock}`, CLOCK_OFFSET_MS: '0' };
  const { first, follower, key } = await openPair({ followerEnv: env });
  await first.stop();
  const headers = { authorization: `Bearer ${key}` };
  for (const [hours, status] of [
    [23.5, 200],
    [24.5, 503],
  ] as const) {
    await follower.stop();
    env.CLOCK_OFFSET_MS = String(hours * 3_600_000);
    await follower.restart();
    expect([hours, (await fetch(`${follower.url}/v1/models`, { headers })).status]).toEqual([hours, status]);
  }
});
