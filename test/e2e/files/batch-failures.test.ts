/** A batch in time that the test moves, while file stores, storages and other objects fail. */
import { rename, truncate } from 'node:fs/promises';
import { describe, expect, it, vi } from 'vitest';
import { FileStoreError } from '../../../gateway/files/file-store.ts';
import { StorageFailingError } from '../../../gateway/platform/storage/storage-health.ts';
import { lineOf, specOf } from '../../support/virtual-gateway.ts';
import {
  batch,
  begun,
  commit,
  DAY_MS,
  gateway,
  ID,
  INPUT,
  lease,
  openVirtualGateways,
  parsed,
  refOf,
  shown,
  turn,
} from './virtual-batch.ts';

openVirtualGateways();

/** Runs more steps than may fail if the data of the batch is faulty. */
async function steps(): Promise<void> {
  for (let i = 0; i < 5; i++) await turn(5_000);
}

describe('however often a step fails, the batch continues afterwards, because its data is not the cause:', () => {
  const limits = { subject: 'key:k', key: { tokens_per_month: 1_000 }, project: undefined };
  const away = { getByName: () => new Proxy({}, { get: () => () => Promise.reject(new Error('away')) }) } as never;

  async function completes(): Promise<void> {
    await turn(6_000);
    await commit(lease(), [0, 1, 2]);
    await steps();
    expect(shown()).toMatchObject({ status: 'completed', request_counts: { completed: 3, failed: 0 } });
    expect(new Set(gateway.used.map(({ stream }) => stream)).size).toBe(3);
  }

  it.each(['USAGE', 'LIMITS'] as const)('%s does not answer', async (object) => {
    await begun(3, { account: { ...specOf(ID).account, limits } });
    const known = gateway.env[object];
    gateway.env[object] = away;
    const granted = lease();
    await commit(granted, [0]);
    await steps();
    expect(shown()).toMatchObject({
      status: 'in_progress',
      x_otela: { waiting_for: expect.stringContaining('tries again') },
    });
    batch().release(refOf(granted));
    gateway.env[object] = known as never;
    await completes();
  });

  it.each([new StorageFailingError({ reason: 'no space left', since: 0 }), new Error('database or disk is full')])(
    'its storage says %s',
    async (failure) => {
      await begun(3);
      lease('gone');
      const { sql } = gateway.batch(ID).context.storage;
      const { exec } = sql;
      const write = vi.spyOn(sql, 'exec').mockImplementation((query, ...bindings) => {
        if (/\b(INSERT|UPDATE|DELETE)\b/.test(query)) throw failure;
        return exec.call(sql, query, ...bindings) as never;
      });
      await gateway.pass(ID, 90_000);
      expect(write.mock.calls.filter(([query]) => query.startsWith('INSERT')).length).toBeGreaterThan(3);
      expect(shown().status).toBe('in_progress');
      write.mockRestore();
      await completes();
    },
  );
});

it('a line that ends the engine of each node fails after it was tried on three, and the third such line ends the batch', async () => {
  await begun(5);
  const node = { provider: 'lab', state: 'LEFT', connected: false, suspected: false, models: [] };
  const entries = [
    { ...node, session: 'evicted', leaving: 'preempted' },
    { ...node, session: 'crashed', leaving: 'engine-ended' },
  ];
  const snapshot = async () => ({ whole: true, removed: [], tag: 'crash', entries });
  gateway.env.REGISTRY = { getByName: () => ({ snapshot }) } as never;
  for (let i = 0; i < 10; i++) {
    expect(lease('evicted').open).toEqual([0, 1, 2, 3, 4]);
    await turn(5_000);
  }
  const open: number[][] = [];
  for (let i = 0; i < 11; i++) {
    open.push(lease('crashed').open);
    await turn(5_000);
  }
  const all = [0, 1, 2, 3, 4];
  expect(open).toEqual([all, all, [0], [0], [0], [1], [1], [1], [2], [2], [2]]);
  await turn(5_000);
  expect(shown()).toMatchObject({ status: 'completed', request_counts: { total: 5, completed: 0, failed: 5 } });
  const failed = await parsed(shown().error_file_id);
  const ended = 'The engine of the node ended while it ran this line.';
  const gaveUp = expect.stringContaining('each ended the engines of three nodes');
  expect(failed.map(({ error }) => error.code)).toEqual(Array.from({ length: 5 }, () => 'engine_failed'));
  expect(failed.map(({ error }) => error.message)).toEqual([
    ...Array.from({ length: 3 }, () => expect.stringContaining(ended)),
    gaveUp,
    gaveUp,
  ]);
});

describe('a file store', () => {
  it('that cannot be reached while the input is checked: the batch says so, and begins when it is back', async () => {
    const { read } = gateway.store;
    gateway.store.read = () => Promise.reject(new FileStoreError('unavailable', 'away'));
    await begun(3);
    expect(shown()).toMatchObject({
      status: 'validating',
      x_otela: { waiting_for: expect.stringContaining('reached') },
    });
    gateway.store.read = read;
    await turn(5_000);
    expect(shown()).toMatchObject({ status: 'in_progress', x_otela: { waiting_for: null } });
  });

  it('that is full at the end: nothing is lost, and the files are written when there is room', async () => {
    await begun(3);
    const { put } = gateway.store;
    gateway.store.put = () => Promise.reject(new FileStoreError('full', 'no room'));
    await commit(lease(), [0, 1, 2]);
    await turn(1);
    expect(shown()).toMatchObject({ status: 'finalizing', x_otela: { waiting_for: 'The file store is full.' } });
    await turn(3_600_000);
    expect(shown().status).toBe('finalizing');
    gateway.store.put = put;
    await turn(5_000);
    expect(shown().status).toBe('completed');
    expect(await parsed(shown().output_file_id)).toHaveLength(3);
  });

  it('that fails a node: its lines wait some seconds, not the node in a circle', async () => {
    await begun(3);
    const granted = lease();
    batch().inputFailed(refOf(granted), 'The file store cannot be reached now.');
    expect(batch().admission()).toBeNull();
    expect(shown().x_otela).toMatchObject({ leased: 0, waiting_for: 'The file store cannot be reached now.' });
    await turn(5_000);
    expect(lease('other').open).toEqual([0, 1, 2]);
  });

  it('that has lost a part of the input before the check: the batch waits for it, and fails when its window is over', async () => {
    const bytes = await gateway.input(INPUT, [lineOf('a'), lineOf('b')]);
    await truncate(gateway.path(INPUT), bytes - 10);
    await batch().start(specOf(ID, { inputBytes: bytes }));
    await gateway.settle(ID);
    expect(shown()).toMatchObject({ status: 'validating', x_otela: { waiting_for: expect.stringContaining('lost') } });
    await turn(DAY_MS);
    expect(shown()).toMatchObject({ status: 'failed', errors: { data: [{ code: 'input_lost', line: null }] } });
  });

  it('that has lost the input at the end: the batch waits for it, and takes it when it is back', async () => {
    await begun(3);
    await commit(lease(), [0, 1, 2]);
    await rename(gateway.path(INPUT), `${gateway.path(INPUT)}.away`);
    await turn(1);
    expect(shown()).toMatchObject({ status: 'finalizing', x_otela: { waiting_for: expect.stringContaining('lost') } });
    await rename(`${gateway.path(INPUT)}.away`, gateway.path(INPUT));
    await turn(5_000);
    expect(shown().status).toBe('completed');
  });

  it('that has lost the input for good: answers are given when the window is over, without the names of their lines', async () => {
    await begun(3);
    await commit(lease(), [0, 2]);
    await truncate(gateway.path(INPUT), 5);
    await turn(DAY_MS + 5_000);
    expect(shown()).toMatchObject({ status: 'expired', request_counts: { total: 3, completed: 2 } });
    const output = await parsed(shown().output_file_id);
    expect(output).toMatchObject([{ custom_id: null }, { custom_id: null }]);
    expect(output.map(({ id }) => Number.parseInt(id.slice(-6), 16))).toEqual([0, 2]);
    expect(await parsed(shown().error_file_id)).toMatchObject([{ custom_id: null, error: { code: 'batch_expired' } }]);
  });
});
