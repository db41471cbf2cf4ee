/**
 * The gateway's part of a node's engine log and GPU load: its agent is asked, and only for readers with the right to
 * know.
 */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { seedKey } from '../accounts/seed.ts';
import { connect, newAgent } from './obedient-agent.ts';
import { good, knock, refusal } from './support.ts';

const keys = { operator: '', eth: '', consumer: '' };

beforeAll(async () => {
  keys.operator = (await seedKey('operator')).key;
  keys.consumer = (await seedKey('consumer')).key;
  const eth = await seedKey('provider');
  await database(env).update(apiKeys).set({ provider: 'eth' }).where(eq(apiKeys.id, eth.id));
  keys.eth = eth.key;
});

const read = (session: string, key: string) => knock('GET', `/admin/nodes/${session}/telemetry`, { key });
const GPUS = [{ use: 0.87, memory_used_mib: 60_211, memory_total_mib: 81_920 }];

test('operators and its provider read the log and the GPU use; others do not, and nothing is written down', async () => {
  const agent = await newAgent('eth');
  const { wishes } = await connect(agent, '25', { kind: 'inspected', log: 'Loading\n  weights', gpus: GPUS });
  for (const key of [keys.operator, keys.eth])
    expect(await good(read(agent.session, key), z.looseObject({}))).toEqual({
      object: 'node_telemetry',
      session: agent.session,
      log: 'Loading\n  weights',
      gpus: GPUS,
    });
  expect(wishes).toEqual([{ action: 'inspect' }, { action: 'inspect' }]);
  await refusal(read(agent.session, keys.consumer), 403, 'permission_denied');
  const audit = z.object({ data: z.array(z.unknown()) });
  const { data } = await good(knock('GET', `/admin/audit?object=${agent.session}`, { key: keys.operator }), audit);
  expect(data).toEqual([]);
  const other = await newAgent('psi');
  const asked = await connect(other, '25', { kind: 'inspected', log: 'secret', gpus: null });
  await refusal(read(other.session, keys.eth), 404, 'not_found');
  expect(asked.wishes).toEqual([]);
});

test('an agent of an older version is not asked, one that does not know the order is told of, and a wrong answer is an error', async () => {
  const old = await newAgent('eth');
  const { wishes } = await connect(old, '24', { kind: 'inspected', log: '', gpus: null });
  await refusal(read(old.session, keys.operator), 409, 'order_refused');
  expect(wishes).toEqual([]);
  const unaware = await newAgent('eth');
  await connect(unaware, '25', { kind: 'refused', code: 'malformed', message: 'is for a newer agent' });
  await refusal(read(unaware.session, keys.operator), 409, 'order_refused');
  const hostile = await newAgent('eth');
  await connect(hostile, '25', { kind: 'inspected', log: 'x'.repeat(40_000), gpus: null });
  await refusal(read(hostile.session, keys.operator), 502, 'upstream_error');
});
