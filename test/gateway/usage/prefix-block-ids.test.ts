import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { receiptOf, sealIdentity } from '../../../gateway/accounts/payer-receipt.ts';
import { PendingPrefixBlocks } from '../../../gateway/usage/prefix-block-ids.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';
import { usageRow } from '../support/usage-row.ts';

const SESSION = 'p'.repeat(26);
const AT = Date.parse('2026-11-20T07:30:00Z');
const shard = env.USAGE.getByName('2026-11-20T07');
const block = (n: number) => new Uint8Array(32).fill(n);

async function receipt(secret: string, prefixes: boolean): Promise<string> {
  const counted = { user: false, model: false, gpu: false };
  const identity = { keyId: 'k', userId: '', projectId: 'p', subject: '', traced: true, prefixes, counted };
  return receiptOf(await sealIdentity(secret, identity), 'm', false);
}

function record(stream: number, given: string): UsageRecord {
  const name = { requestId: `r${stream}`, attempt: 1, session: SESSION, stream };
  return { ...NO_USAGE, ...name, receipt: given, answerBytes: 0, at: AT, repeated: false };
}

const bucketsOf = async (stream: number) =>
  (await shard.page(0, 100, false)).find(({ row }) => row.session === SESSION && row.stream === stream)?.row.buckets;

test('blocks go only to records whose gateway requested them, whatever an agent sends', async () => {
  await shard.add([1, 2, 3].map((stream) => usageRow(stream, { session: SESSION, at: AT })));
  const [asked, not, foreign] = [await receipt('s', true), await receipt('s', false), await receipt('another', true)];
  const receipts = new Map([
    [1, asked],
    [2, not],
    [3, foreign],
  ]);
  const prefixes = new PendingPrefixBlocks();
  for (const stream of [1, 2, 3, 4]) prefixes.add(stream, new Uint8Array([...block(7), ...block(8), 1, 2, 3]), AT);
  const known = (stream: number) => (receipts.has(stream) ? record(stream, receipts.get(stream) ?? '') : undefined);
  await prefixes.handOn(env, 's', SESSION, { record: known, now: AT });
  // Less than a whole block does not count.
  expect(await bucketsOf(1)).toEqual([expect.stringMatching(/^[\w-]{11}$/), expect.stringMatching(/^[\w-]{11}$/)]);
  expect([await bucketsOf(2), await bucketsOf(3)]).toEqual([undefined, undefined]);
  // The fourth has no record yet; after a minute it is given up.
  expect(prefixes.idle).toBe(false);
  await prefixes.handOn(env, 's', SESSION, { record: known, now: AT + 61_000 });
  expect(prefixes.idle).toBe(true);
});

test('the same block has the same id here, and another one at another installation', async () => {
  await shard.add([11, 12, 13].map((stream) => usageRow(stream, { session: SESSION, at: AT })));
  for (const [stream, secret] of [
    [11, 's'],
    [12, 's'],
    [13, 'other'],
  ] as const) {
    const prefixes = new PendingPrefixBlocks();
    prefixes.add(stream, block(9), AT);
    const given = record(stream, await receipt(secret, true));
    await prefixes.handOn(env, secret, SESSION, { record: () => given, now: AT });
  }
  const [a, b, c] = [await bucketsOf(11), await bucketsOf(12), await bucketsOf(13)];
  expect(a).toEqual(b);
  expect(a).not.toEqual(c);
});

test('a flood of blocks keeps a few megabytes of the newest', async () => {
  const prefixes = new PendingPrefixBlocks();
  for (let stream = 0; stream < 2_000; stream++) prefixes.add(stream, new Uint8Array(32 * 1024), AT);
  const asked: number[] = [];
  const none = (stream: number) => {
    asked.push(stream);
    return undefined;
  };
  await prefixes.handOn(env, 's', SESSION, { record: none, now: AT });
  expect(asked).toHaveLength(64);
  expect(asked.at(-1)).toBe(1_999);
  // Reported twice for one stream, it is held once.
  for (let n = 0; n < 1_000; n++) prefixes.add(1_999, new Uint8Array(32 * 1024), AT);
  asked.length = 0;
  await prefixes.handOn(env, 's', SESSION, { record: none, now: AT });
  expect(asked).toHaveLength(64);
});
