/**
 * 50 requests a second while one of two gateways is killed: a client with both addresses sees no error, and usage is
 * exact when both are back.
 */
import { afterEach, expect, test } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { twoAddresses } from '../../support/two-addresses.ts';
import { booked, openPair, type Pair } from './support.ts';

afterEach(endAll);

const PER_SECOND = 50;
/** Number of kills; the long form, `npm run soak -- gateways`, has more. */
const ROUNDS = Number(process.env.OTELA_KILL_ROUNDS ?? 1);

/** Each request that the engine began is recorded at the primary exactly once. */
async function exact(pair: Pair): Promise<void> {
  const began = () => pair.engine.requests.filter(({ url }) => url === '/v1/chat/completions').length;
  expect(pair.engine.requests[0]?.id, 'the engine remembers all of them').toBe(1);
  await eventually('usage is exact', 30_000, async () => {
    const books = await booked(pair.first);
    if (books !== began()) throw new Error(`${books} on the books, the engine began ${began()}`);
    return true;
  });
}

test.each(['first', 'follower'] as const)('the %s is killed under load', async (role) => {
  const pair = await openPair();
  const killed = pair[role];
  const client = twoAddresses({ addresses: [pair.first, pair.follower], key: pair.key, perSecond: PER_SECOND });
  for (let round = 0; round < ROUNDS; round++) {
    const before = client.served;
    await eventually('load on both', 20_000, () => (client.served > before + 2 * PER_SECOND ? true : undefined));
    await killed.kill9();
    const alone = client.served;
    await eventually('the other one serves', 30_000, () => (client.served > alone + 3 * PER_SECOND ? true : undefined));
    await killed.restart();
    await killed.serving(1);
  }
  await client.stop();
  expect(client.errors).toEqual([]);
  expect(client.served).toBe(client.sent);
  expect(client.retried).toBeGreaterThan(0);
  await exact(pair);
});
