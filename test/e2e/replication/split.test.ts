/**
 * Two gateways that cannot reach each other, or with different clocks, under load: a client with both addresses sees no
 * error.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { partition } from '../../support/partition.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { twoAddresses } from '../../support/two-addresses.ts';
import { ROOT } from '../../support/where.ts';
import { asked, booked, cli, openPair, type Pair, requireLimit } from './support.ts';

afterEach(endAll);

const PER_SECOND = 50;

/** Each request that the engine began is recorded at one gateway exactly once. */
async function exact(pair: Pair, books: 'first' | 'follower'): Promise<void> {
  const began = pair.engine.requests.filter(({ url }) => url === '/v1/chat/completions').length;
  expect(pair.engine.requests[0]?.id, 'the engine remembers all of them').toBe(1);
  await eventually('usage is exact', 30_000, async () => {
    const found = await booked(pair[books]);
    if (found !== began) throw new Error(`${found} on the books, the engine began ${began}`);
    return true;
  });
}

function loadOn(pair: Pair) {
  const client = twoAddresses({ addresses: [pair.first, pair.follower], key: pair.key, perSecond: PER_SECOND });
  const flows = (seconds: number) => {
    const before = client.served;
    return eventually('load flows', 30_000, () => (client.served > before + seconds * PER_SECOND ? true : undefined));
  };
  return { client, flows };
}

/** Opens a pair of gateways. The test can cut the connection between them. */
async function openDivisible() {
  const between: { cut(): void; heal(): void; url: string }[] = [];
  const pair = await openPair({
    through: async (first) => {
      const made = await partition(first);
      between.push(made);
      return made.url;
    },
  });
  return { pair, line: between[0] };
}

test('cut off from each other both serve; healed, the first has all records', async () => {
  const { pair, line } = await openDivisible();
  const { client, flows } = loadOn(pair);
  await flows(1);
  line?.cut();
  await eventually('the follower notices', 15_000, async () =>
    JSON.stringify(await pair.follower.admin('GET', 'gateways')).includes('"connected":false') ? true : undefined,
  );
  await flows(3);
  line?.heal();
  await flows(1);
  await client.stop();
  expect(client.errors).toEqual([]);
  expect(client.served).toBe(client.sent);
  await exact(pair, 'first');
});

test('promoted while cut off there are two firsts for a while; healed, the new one has all records of both', async () => {
  const { pair, line } = await openDivisible();
  const { client, flows } = loadOn(pair);
  await flows(1);
  line?.cut();
  await flows(1);
  const root = join(pair.first.data, 'issuer/root.key');
  cli('promote', '--data', pair.follower.data, '--url', pair.follower.url, '--root-key', root);
  await eventually('the follower is first', 10_000, async () =>
    JSON.stringify(await pair.follower.admin('GET', 'gateways')).includes('"role":"first"') ? true : undefined,
  );
  await flows(2);
  line?.heal();
  await eventually('the former first follows', 30_000, async () =>
    /"role":"follower".*"connected":true/.test(JSON.stringify(await pair.first.admin('GET', 'gateways')))
      ? true
      : undefined,
  );
  await flows(1);
  await client.stop();
  expect(client.errors).toEqual([]);
  expect(client.served).toBe(client.sent);
  await exact(pair, 'follower');
});

test.each([-600_000, 600_000])(
  'a follower whose clock is %i ms off serves, shares limits and hands its records over',
  async (offset) => {
    const clock = pathToFileURL(join(ROOT, 'test/support/clock-offset.ts')).href;
    const pair = await openPair({
      followerEnv: { NODE_OPTIONS: `--import=${clock}`, CLOCK_OFFSET_MS: String(offset) },
    });
    const { client, flows } = loadOn(pair);
    await flows(2);
    await client.stop();
    expect(client.errors).toEqual([]);
    await exact(pair, 'first');
    const limited = await pair.first.createKey('limited', { limits: { requests_per_minute: 60 } });
    await eventually('the key at the follower', 10_000, async () => {
      const answer = await fetch(`${pair.follower.url}/v1/models`, { headers: { authorization: `Bearer ${limited}` } });
      return answer.status === 200 ? true : undefined;
    });
    const askedAt = Date.now();
    const both = await Promise.all(
      Array.from({ length: 80 }, (_, n) => asked(n % 2 === 0 ? pair.first : pair.follower, limited)),
    );
    requireLimit(both, 60, askedAt);
  },
);
