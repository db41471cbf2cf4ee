/** Limits hold for both gateways together, and a promoted follower is the primary. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import * as z from 'zod';
import type { Gateway } from '../../support/gateway.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { asked, chat, cli, openPair, requireLimit } from './support.ts';

afterEach(endAll);

const gatewaysOf = (gateway: { admin(method: string, path: string): Promise<unknown> }) =>
  gateway.admin('GET', 'gateways') as Promise<{
    role: string;
    epoch: number;
    first?: string;
    connected?: boolean;
    followers?: { connected: boolean }[];
  }>;

test('of 60 requests a minute over both gateways 60 pass while they hear each other; alone each allows its half', async () => {
  const { first, follower } = await openPair();
  const limited = await first.createKey('limited', { limits: { requests_per_minute: 60 } });
  await eventually('the key at the follower', 10_000, async () => {
    const response = await fetch(`${follower.url}/v1/models`, { headers: { authorization: `Bearer ${limited}` } });
    return response.status === 200 ? true : undefined;
  });
  const askedAt = Date.now();
  const both = await Promise.all(
    Array.from({ length: 80 }, async (_, n) => {
      const response = await chat(n % 2 === 0 ? first : follower, limited, { tokens: 1 });
      await response.text();
      return response.status;
    }),
  );
  requireLimit(both, 60, askedAt);
  expect(both.filter((status) => status !== 200 && status !== 429)).toEqual([]);

  const other = await first.createKey('other', { limits: { requests_per_minute: 21 } });
  await eventually('the other key at the follower', 10_000, async () => {
    const response = await fetch(`${follower.url}/v1/models`, { headers: { authorization: `Bearer ${other}` } });
    return response.status === 200 ? true : undefined;
  });
  await first.kill9();
  const aloneAt = Date.now();
  const alone = await Promise.all(Array.from({ length: 30 }, () => asked(follower, other)));
  requireLimit(alone, 10, aloneAt);
  await follower.kill9();
  await first.restart();
  await first.serving(1);
  const atFirstAt = Date.now();
  const atFirst = await Promise.all(Array.from({ length: 30 }, () => asked(first, other)));
  requireLimit(atFirst, 11, atFirstAt);
});

const tokensSchema = z.object({ prompt_tokens: z.number(), completion_tokens: z.number() });
const usageSchema = z.object({ data: z.array(tokensSchema) });
const usesSchema = z.object({ key: z.array(z.object({ limit: z.string(), used: z.number() })) });

/** Tokens that a gateway counts for a key in this month. */
async function monthOf(gateway: { url: string }, key: string): Promise<number | undefined> {
  const answer = await fetch(`${gateway.url}/admin/me/limits`, { headers: { authorization: `Bearer ${key}` } });
  const { key: uses } = usesSchema.parse(await answer.json());
  return uses.find(({ limit }) => limit === 'tokens_per_month')?.used;
}

test('a promoted follower is the first, and counts months on; the former one follows it, and lists what was changed there after the split', async () => {
  const { first, follower, key } = await openPair();
  const limits = { tokens_per_month: 1_000_000 };
  const budget = await first.createKey('budget', { limits });
  const used = (gateway: Gateway, tokens: number) =>
    eventually(`${tokens} tokens at ${gateway.url}`, 20_000, async () => {
      const now = await monthOf(gateway, budget);
      if (now !== tokens) throw new Error(`${now} tokens`);
      return true;
    });
  expect(await asked(first, budget)).toBe(200);
  const each = await eventually('what one request uses', 20_000, async () => {
    const { data } = usageSchema.parse(await first.admin('GET', 'usage'));
    return data[0] && data[0].prompt_tokens + data[0].completion_tokens;
  });
  await eventually('the key at the follower', 10_000, async () =>
    (await asked(follower, budget)) === 200 ? true : undefined,
  );
  await used(first, 2 * each);
  await eventually('a connected follower', 10_000, async () =>
    (await gatewaysOf(first)).followers?.[0]?.connected ? true : undefined,
  );
  // The primary is disconnected, but not dead, so the follower never learns of the next change. The follower has the
  // count by now, because it asks once a second.
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  follower.process.signal('SIGSTOP');
  await first.createKey('made after the split');
  expect(await asked(first, budget)).toBe(200);
  await used(first, 3 * each);
  await first.kill9();
  follower.process.signal('SIGCONT');
  const root = join(first.data, 'issuer/root.key');
  expect(() => cli('promote', '--data', follower.data, '--url', follower.url)).toThrow(/root key/);
  cli('promote', '--data', follower.data, '--url', follower.url, '--root-key', root);
  await eventually('the follower is first', 10_000, async () =>
    (await gatewaysOf(follower)).role === 'first' ? true : undefined,
  );
  const made = await follower.createKey('made at the new first');
  expect(await asked(follower, made)).toBe(200);
  await used(follower, 2 * each);
  expect(await asked(follower, budget)).toBe(200);

  await first.restart().catch(() => {});
  await eventually('the former first follows', 20_000, async () => {
    const { role, epoch, first: of, connected } = await gatewaysOf(first);
    return role === 'follower' && epoch === 1 && of === follower.url && connected ? true : undefined;
  });
  const split = readdirSync(first.data).find((name) => name === 'split-1.jsonl');
  expect(readFileSync(join(first.data, split ?? ''), 'utf8')).toContain('made after the split');
  await eventually('the new key at the former first', 15_000, async () =>
    (await asked(first, made)) === 200 ? true : undefined,
  );
  expect(await asked(first, key)).toBe(200);
  // The usage that the former primary recorded after the split counts once, and so does the usage that it records as a
  // follower.
  await used(follower, 4 * each);
  expect(await asked(first, budget)).toBe(200);
  await used(follower, 5 * each);
  expect(JSON.stringify(await first.admin('GET', 'keys'))).not.toContain('made after the split');
});
