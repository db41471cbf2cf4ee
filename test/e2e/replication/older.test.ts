/**
 * Gateways with different schemas follow each other under load. Here the older gateway is simulated: by this program
 * with a database that lacks a column. `npm run soak -- gateways` builds a real one from the history and names its
 * program in OTELA_OLDER_GATEWAY.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, expect, test } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually, freePort } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { twoAddresses } from '../../support/two-addresses.ts';
import { asked, booked, startFollower } from './support.ts';

afterEach(endAll);

const older = process.env.OTELA_OLDER_GATEWAY;

/** Adds a column, as a future migration would. */
function widen(gateway: Gateway, table: string, column: string): void {
  const database = new DatabaseSync(join(gateway.data, 'accounts.sqlite'));
  database.exec(`ALTER TABLE ${table} ADD COLUMN ${column} TEXT NOT NULL DEFAULT 'as it was'`);
  database.close();
}

test('each has columns that the other lacks: keys, revocations and records pass', async () => {
  const port = await freePort();
  const first = await Gateway.start({ port, args: ['--url', `http://127.0.0.1:${port}`] });
  await first.stop();
  widen(first, 'api_keys', 'of_tomorrow');
  widen(first, 'providers', 'of_tomorrow');
  await first.restart();
  const [key, token] = await Promise.all([first.createKey(), first.createJoinToken()]);
  const follower = await startFollower(first, [], older === undefined ? {} : { main: older });
  if (older === undefined) {
    await follower.stop();
    widen(follower, 'api_keys', 'of_another_branch');
    await follower.restart();
  }
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [first.url], token, engineUrl: engine.url });
  await first.serving(1);
  await follower.serving(1, 45_000);
  const client = twoAddresses({ addresses: [first, follower], key, perSecond: 50 });
  await eventually('load flows', 20_000, () => (client.served > 100 ? true : undefined));
  const later = await first.createKey('later');
  await eventually('a new key at the follower', 10_000, async () =>
    (await asked(follower, later)) === 200 ? true : undefined,
  );
  const { data } = (await first.admin('GET', 'keys')) as { data: { id: string; name: string }[] };
  await first.admin('DELETE', `keys/${data.find(({ name }) => name === 'later')?.id}`);
  await eventually('the revoked key at the follower', 5_000, async () =>
    (await asked(follower, later)) === 401 ? true : undefined,
  );
  await first.kill9();
  const alone = client.served;
  await eventually('the follower serves', 20_000, () => (client.served > alone + 50 ? true : undefined));
  await first.restart();
  await client.stop();
  expect(client.errors).toEqual([]);
  const began = engine.requests.filter(({ url }) => url === '/v1/chat/completions').length;
  await eventually('usage is exact', 30_000, async () => ((await booked(first)) === began ? true : undefined));
});
