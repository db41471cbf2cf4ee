/** A statement has the requests of one peer institution and month, as both institutions write them, and no others. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { workerdCrypto } from '../../../gateway/issuer/ed25519.ts';
import { createIssuer, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { isFinal, monthBounds, peerStatementStream, statementRecord } from '../../../gateway/usage/peer-statement.ts';
import { type UsageRow, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { StatementReader } from '../../../shared/usage/signed-statement.ts';
import { readRecordLine, recordLine, type StatementRecord } from '../../../shared/usage/statement-record.ts';
import { usageRow } from '../support/usage-row.ts';

const NOW = Date.parse('2026-05-09T00:00:00Z');
const issuer = new GatewayIssuer(createIssuer(NOW / 1_000).gateway);

const untracked: unknown[] = [];

async function read(side: 'served' | 'used', peer: string): Promise<StatementRecord[]> {
  const { from, to } = monthBounds('2026-04');
  const facts = {
    month: '2026-04',
    side,
    issuer: issuer.issuer,
    peer: 'b'.repeat(26),
    made_at: NOW / 1_000,
    final: isFinal(to, NOW),
  };
  const stream = peerStatementStream(env, { peer, facts, from, to, sign: async (head) => issuer.statement(head) });
  const text = await new Response(stream).text();
  expect(text.endsWith('\n')).toBe(true);
  const reader = new StatementReader(workerdCrypto);
  const records = text
    .trimEnd()
    .split('\n')
    .flatMap((line) => reader.line(line) ?? []);
  const { statement } = reader.end();
  expect(statement).toMatchObject({ size: records.length, final: true });
  untracked.push(statement.untracked);
  return records;
}

const at = (time: string) => Date.parse(`2026-${time}:00Z`);

test('both sides of a month are stated, over all its hours and pages', async () => {
  const served = (n: number, time: string, more: Partial<UsageRow> = {}) =>
    usageRow(-n, { at: at(time), key: 'peer:psi', project: 'proj_1@psi', provider: 'lab', gpuMs: 250, ...more });
  const used = (n: number, time: string, more: Partial<UsageRow> = {}) =>
    usageRow(n, { at: at(time), provider: 'gpus@psi', project: 'proj_9', ...more });
  const viaIngress = (n: number, more: Partial<UsageRow>) =>
    usageRow(-n, {
      at: at('04-20T00:00'),
      key: 'ingress:lab',
      provider: 'lab',
      project: '',
      served: { session: 'c'.repeat(26), provider: 'gpus@psi' },
      ...more,
    });
  const many = Array.from({ length: 600 }, (_, n) => served(1_000 + n, '04-10T09:00'));
  const rows = [
    served(1, '04-01T00:00'),
    served(2, '04-30T23:59', { project: '' }),
    served(3, '03-31T23:59'),
    served(4, '05-01T00:00'),
    served(5, '04-02T00:00', { key: 'peer:psi2' }),
    used(6, '04-02T00:00'),
    used(7, '04-02T00:00', { provider: 'gpus@other' }),
    used(8, '04-02T00:00', { provider: 'gpus@psi', session: '', error: 'no_capacity' }),
    used(9, '04-02T00:00', { key: 'ingress:gpus@psi' }),
    served(10, '04-03T00:00', { project: '', model: '', request: 'n'.repeat(16), untracked: true }),
    served(11, '04-03T00:00', { key: 'peer:psi2', untracked: true }),
    viaIngress(12, {}),
    // An agent of another institution, and a node of this one.
    viaIngress(13, { provider: 'gpus@psi', key: 'ingress:gpus@psi' }),
    viaIngress(14, { served: { session: 'c'.repeat(26), provider: 'lab' } }),
    ...many,
  ];
  for (const [shard, some] of Map.groupBy(rows, (row) => usageShardOf(row.at)))
    await env.USAGE.getByName(shard).add(some);
  const ours = await read('served', 'psi');
  expect(ours).toHaveLength(602);
  expect(ours[0]).toMatchObject({ request: 'r-1', provider: 'lab', project: 'proj_1', gpu_ms: 250 });
  expect(ours.at(-1)).toMatchObject({ request: 'r-2', project: null });
  expect(await read('used', 'psi')).toMatchObject([
    { request: 'r6', provider: 'gpus', project: 'proj_9', gpu_ms: null },
    { request: 'r-12', provider: 'gpus', project: null, session: 'c'.repeat(26) },
  ]);
  expect(await read('served', 'nobody')).toEqual([]);
  const none = { requests: 0, prompt: 0, completion: 0, gpu_ms: 0 };
  expect(untracked).toEqual([{ requests: 1, prompt: 10, completion: 5, gpu_ms: 250 }, none, none]);
});

test('every row gives a record that readers accept', () => {
  const strange = usageRow(1, {
    key: 'peer:psi',
    project: 'x y@psi',
    model: '\u0000"\ud800\n',
    prompt: -5,
    completion: 1e12,
    cached: 1.5,
    gpuMs: 1e99,
  });
  const record = statementRecord(strange, 'served', 'psi');
  if (record === undefined) throw new Error('no record');
  expect(readRecordLine(recordLine(record))).toEqual(record);
});

test('months have their own lengths', () => {
  expect(monthBounds('2028-02')).toEqual({ from: Date.UTC(2028, 1, 1), to: Date.UTC(2028, 2, 1) });
  expect(monthBounds('2026-12').to).toBe(Date.UTC(2027, 0, 1));
  expect(isFinal(NOW, NOW + 7 * 86_400_000)).toBe(false);
});
