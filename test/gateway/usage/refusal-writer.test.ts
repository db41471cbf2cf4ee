/** Records of requests that no engine saw, on their way to the hour's object. */
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { RefusalWriter } from '../../../gateway/usage/refusal-writer.ts';
import { NO_SESSION, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { usageTotalOf } from '../../../gateway/usage/usage-totals.ts';
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

test('rows that find no place after a failed write are counted, and the log reports their number', async () => {
  const refusals = new RefusalWriter();
  const works: Promise<unknown>[] = [];
  const ctx = { waitUntil: (work: Promise<unknown>) => void works.push(work) };
  const log = vi.spyOn(console, 'error').mockImplementation(() => {});
  const at = Date.now();
  const add = (stream: number, kind: string, env: Env) =>
    refusals.add(usageRow(stream, { session: NO_SESSION, at, model: kind }), env, ctx);
  const written: unknown[] = [];
  const failing = {
    USAGE: {
      getByName: () => ({
        add: async () => {
          // Meanwhile other kinds have taken all places but 400.
          for (let n = 0; n < 600; n++) add(n, `later-${n}`, working);
          throw new Error('away');
        },
      }),
    },
  } as unknown as Env;
  const working = {
    USAGE: { getByName: () => ({ add: async (rows: unknown[]) => void written.push(...rows) }) },
  } as unknown as Env;
  for (let n = 0; n < 1_000; n++) add(n, `first-${n}`, failing);
  await works[0];
  await Promise.all(works);
  expect(written).toHaveLength(1_000);
  expect(log.mock.calls.flat()).toEqual([expect.stringMatching(/^600 requests /)]);
  log.mockRestore();
});

test('if the clock is set back while a write is pending that never ends, the next refusal starts another', () => {
  const refusals = new RefusalWriter();
  let writes = 0;
  const ctx = { waitUntil: () => void writes++ };
  const at = Date.now();
  for (const time of [at, at + 1, at - 600_000]) refusals.add(usageRow(1, { session: NO_SESSION, at: time }), env, ctx);
  expect(writes).toBe(2);
});
