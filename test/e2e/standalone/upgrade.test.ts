/** A data directory that an earlier version wrote (test/support/earlier), and a version that comes next. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { PROTOCOL_VERSION } from '../../../shared/wire/limits.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { chatBody, MODEL } from '../../support/house.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { NODE, ROOT } from '../../support/where.ts';

const MAIN = join(ROOT, 'gateway/standalone/node/main.ts');
const EARLIER = join(ROOT, 'test/support/earlier');
const expectedSchema = z.object({
  key: z.string(),
  key_id: z.string(),
  user: z.string(),
  project: z.string(),
  token: z.string(),
  requests: z.number(),
  completion_tokens: z.number(),
});
const expected = expectedSchema.parse(JSON.parse(readFileSync(join(EARLIER, 'expected.json'), 'utf8')));
/** The day on which it was written; records of it are kept for as long as this test may be run. */
const DAY = '2026-11-22';
const KEPT = { USAGE_KEPT_DAYS: '36500' };

afterEach(endAll);

const cli = (...args: string[]) => spawnSync(NODE, [MAIN, ...args], { encoding: 'utf8', timeout: 60_000 });
const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number(), completion_tokens: z.number() })) });

async function earlier(): Promise<string> {
  const data = await temporaryDirectory('otela-earlier');
  execFileSync('tar', ['-C', data, '-xzf', join(EARLIER, 'gateway.tar.gz')]);
  return data;
}

test('a directory of an earlier version is brought forward by the start; keys, people, totals and records are there', async () => {
  const data = await earlier();
  const doctor = cli('doctor', '--data', data, '--port', '0');
  expect([doctor.status, doctor.stdout]).toEqual([
    0,
    expect.stringMatching(/schema: 0002_peers\.sql; the next start brings [6-9]/),
  ]);
  const gateway = await Gateway.start({ data, env: KEPT });
  const models = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${expected.key}` } });
  expect(models.status).toBe(200);
  expect(await gateway.admin('GET', `users/${expected.user}`)).toMatchObject({
    name: 'Ada',
    project_id: expected.project,
  });
  expect(await gateway.admin('GET', `keys/${expected.key_id}`)).toMatchObject({
    name: 'of old',
    user_id: expected.user,
    limits: { tokens_per_month: 1_000_000 },
  });
  const totals = totalsSchema.parse(
    await gateway.admin('GET', `usage?from=${DAY}&to=${DAY}&project=${expected.project}`),
  );
  expect(totals.data).toMatchObject([{ requests: expected.requests, completion_tokens: expected.completion_tokens }]);
  const trace = await fetch(`${gateway.url}/admin/trace?from=${DAY}T00:00:00Z&to=${DAY}T23:59:59Z`, {
    headers: { authorization: `Bearer ${gateway.adminKey}` },
  });
  expect((await trace.text()).trim().split('\n')).toHaveLength(expected.requests);
  expect(cli('doctor', '--data', data, '--port', String(gateway.port)).status).toBe(0);
});

test('a join token of then admits an agent of now, a key of then is answered, and what it uses is added', async () => {
  const gateway = await Gateway.start({ data: await earlier(), env: KEPT });
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [gateway.url], token: expected.token, engineUrl: engine.url });
  await gateway.serving(1);
  const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${expected.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody({ tokens: 3 })),
  });
  expect(answer.status).toBe(200);
  await answer.text();
  const of = `usage?from=${DAY}&project=${expected.project}`;
  await eventually('one more', 20_000, async () => {
    const { data } = totalsSchema.parse(await gateway.admin('GET', of));
    const sum = data.reduce((all, one) => all + one.requests, 0);
    return sum === expected.requests + 1 ? true : undefined;
  });
});

test('an agent that speaks an older protocol is told which of the two to upgrade', async () => {
  const gateway = await Gateway.start();
  const admit = (protocol: number) =>
    fetch(`${gateway.url}/agent/admit`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer otela-join-x' },
      body: JSON.stringify({ protocol, public_key: Buffer.alloc(32, 7).toString('base64url') }),
    });
  const older = await admit(PROTOCOL_VERSION - 1);
  expect([older.status, await older.text()]).toEqual([426, expect.stringContaining('upgrade the agent')]);
  const newer = await admit(PROTOCOL_VERSION + 1);
  expect([newer.status, await newer.text()]).toEqual([426, expect.stringContaining('upgrade the gateway')]);
});
