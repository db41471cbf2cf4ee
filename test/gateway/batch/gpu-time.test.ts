/** The GPU time and the output of a function's lines: what nodes send, and what the gateway accepts of it. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { BatchRecord } from '../../../gateway/batch/batch-record.ts';
import type { BatchSpec } from '../../../gateway/batch/batch-spec.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import { runInDurableObject } from '../support/durable.ts';

const LEASE_MS = 60_000;
const MADE = { context: 'c'.repeat(64), sha256: 's', code: 'code' };
const spec: BatchSpec = {
  id: 'batch_gpu',
  owner: 'project:lab',
  account: BOOTSTRAP_ACCOUNT,
  endpoint: '/v1/otela/functions',
  inputFileId: 'file-input',
  inputExists: true,
  windowS: 86_400,
  metadata: null,
  outputExpiresS: null,
};
const chunk = { offset: 0, bytes: 300, first: 0, lines: 3, demands: 0, prefix: 0 };
const answer = (line: number, gpuMs?: number): LineResult => ({
  line,
  status_code: 200,
  request_id: 'r',
  body: '{}',
  ...(gpuMs === undefined ? {} : { gpu_ms: gpuMs }),
});

/** Runs `run` with a batch of one chunk with three lines, which was leased to `node` at 0 ms. */
function leased(
  name: string,
  made: typeof MADE | undefined,
  run: (
    commit: (results: LineResult[], gpus: number, nowMs: number, node?: string, log?: string) => number,
    record: BatchRecord,
  ) => void,
): Promise<void> {
  return runInDurableObject(env.LIMITS.getByName(name), (_, { storage }) => {
    const record = new BatchRecord(storage, 1e6);
    record.create(spec, 0);
    record.begin(
      { chunks: [chunk], demands: [{ model: 'function:file-1' }], lines: 3, model: 'm', files: [], errors: [] },
      0,
      made,
    );
    const granted = record.ledger.grant('node', 0, LEASE_MS, () => true);
    const epoch = granted?.lease.epoch ?? 0;
    run((results, gpus, nowMs, node = 'node', log = '') => {
      const { gpuMs } = record.commit({ node, chunk: 0, epoch }, results, {
        provider: 'lab',
        gpus,
        log,
        others: false,
        nowMs,
      });
      expect(record.shown(nowMs, null).x_otela.gpu_seconds * 1_000).toBeGreaterThanOrEqual(gpuMs);
      return gpuMs;
    }, record);
  });
}

test('GPU time is counted as claimed, up to what the node’s GPUs can have worked since its last results', () =>
  leased('gpu time of a node', MADE, (commit) => {
    expect(commit([answer(0, 1_500)], 1, 2_000)).toBe(1_500);
    // A node with two GPUs claims a year after a second.
    expect(commit([answer(1, 3e10), answer(2, 3e10)], 2, 3_000)).toBeCloseTo(2_000);
  }));

test('a node without GPUs, and a node that does not hold the lease, charge nothing', () =>
  leased('gpu time of others', MADE, (commit) => {
    expect(commit([answer(0, 1_000)], 0, 2_000)).toBe(0);
    expect(commit([answer(1, 1_000)], 8, 3_000, 'another')).toBe(0);
  }));

test('a lease that has ended, and a result that came before, charge nothing', () =>
  leased('gpu time that is late', MADE, (commit) => {
    expect(commit([answer(0, 1_000), answer(1), answer(2)], 1, 2_000)).toBe(1_000);
    expect(commit([answer(0, 1_000)], 1, 9_000)).toBe(0);
  }));

test('lines at engines are not charged for GPU time', () =>
  leased('gpu time of engines', undefined, (commit) => {
    expect(commit([answer(0, 1_000)], 1, 2_000)).toBe(0);
  }));

test('the last output is kept, of nodes that bring results alone; a node cannot fill the gateway with it', () =>
  leased('output of a function', MADE, (commit, record) => {
    commit([answer(0)], 1, 1_000, 'another', 'invented');
    expect(record.log).toBe('');
    commit([answer(0)], 1, 2_000, 'node', 'loaded\n');
    commit([answer(0)], 1, 3_000, 'node', 'said again, without a new result\n');
    expect(record.log).toBe('loaded\n');
    commit([answer(1)], 1, 4_000, 'node', `${'x'.repeat(8_000)}\n`);
    commit([answer(2)], 1, 5_000, 'node', 'y'.repeat(32_000));
    expect(record.log).toHaveLength(32_768);
    expect(record.log.endsWith('y')).toBe(true);
  }));

test('engines have no output', () =>
  leased('output of an engine', undefined, (commit, record) => {
    commit([answer(0)], 1, 2_000, 'node', 'said');
    expect(record.log).toBe('');
  }));
