/** Records of requests that no engine saw, on their way to the hour's object. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { RefusalWriter } from '../../../gateway/usage/refusal-writer.ts';
import { usageTotalOf } from '../../../gateway/usage/totals.ts';
import { NO_SESSION, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { usageRow } from '../support/usage-row.ts';

test('those that end alike within a second are one row, and its sums are those of all of them', async () => {
  const at = Date.parse('2026-11-23T10:00:00Z');
  const refusals = new RefusalWriter();
  const works: Promise<unknown>[] = [];
  const ctx = { waitUntil: (work: Promise<unknown>) => void works.push(work) };
  const left = (stream: number, waitedMs: number) =>
    usageRow(stream, {
      session: NO_SESSION,
      at,
      status: 499,
      error: 'client_left',
      aborted: true,
      totalMs: waitedMs + 10,
      ...(waitedMs > 0 ? { queueMs: waitedMs } : {}),
    });
  for (const [stream, waitedMs] of [600_000, 1_000, 0, 3_001].entries()) refusals.add(left(stream, waitedMs), env, ctx);
  await Promise.all(works);
  const rows = await env.USAGE.getByName(usageShardOf(at)).page(0, 100, false);
  expect(rows.map(({ row }) => row)).toEqual([
    expect.objectContaining({ times: 4, queueMs: 151_000, totalMs: 151_010, status: 499 }),
  ]);
  const [one] = rows;
  expect(one && usageTotalOf(one.row)).toMatchObject({ requests: 4, aborted: 4, totalMs: 604_040 });
});
