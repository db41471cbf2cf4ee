/** The sweep removes expired files, abandoned uploads and bytes without a row, and nothing else. */
import { utimes, writeFile } from 'node:fs/promises';
import { afterAll, beforeEach, expect, it, vi } from 'vitest';
import { FileStoreError } from '../../../gateway/files/file-store.ts';
import { endAll } from '../../support/processes.ts';
import { lineOf, specOf, VirtualGateway } from '../../support/virtual-gateway.ts';

const DAY_MS = 86_400_000;
const ID = (at: number) => `file-${String(at).padStart(24, '0')}`;
let gateway: VirtualGateway;

beforeEach(async () => {
  gateway = await VirtualGateway.open();
});
afterAll(endAll);

async function stored(): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of gateway.store.list()) ids.push(id);
  return ids.sort();
}
const rows = (table: string) => gateway.database.rows(`SELECT id FROM ${table} ORDER BY id`, []).map(({ id }) => id);
/** Writes a file without a row, with a modification time `ageMs` ago. */
async function bytes(id: string, ageMs: number): Promise<void> {
  async function* content() {
    yield new Uint8Array(3);
  }
  if (id.endsWith('.part')) await writeFile(gateway.path(id), 'abc');
  else await gateway.store.put(id, content(), 10);
  const at = (gateway.now - ageMs) / 1_000;
  await utimes(gateway.path(id), at, at);
}

it('files go when they expire, their bytes with them, and others stay', async () => {
  await gateway.input(ID(1), [lineOf('a')]);
  gateway.now += 20 * DAY_MS;
  await gateway.input(ID(2), [lineOf('b')]);
  gateway.now += 11 * DAY_MS;
  await gateway.sweep().object.alarm();
  expect([rows('files'), await stored()]).toEqual([[ID(2)], [ID(2)]]);
});

it('a file that a batch reads stays until the batch is over, however old it is', async () => {
  const size = await gateway.input(ID(1), [lineOf('a')]);
  const batch = 'batch_000000000000000000000000';
  const { object } = gateway.batch(batch);
  const summary = await object.create(specOf(batch, { inputFileId: ID(1), inputBytes: size, windowS: 40 * 86_400 }));
  await gateway.settle(batch);
  gateway.insert('batches', {
    id: batch,
    owner: 'key:k',
    created_by: 'k',
    created_at: gateway.now,
    open: 1,
    summary: JSON.stringify(summary),
  });
  gateway.now += 31 * DAY_MS;
  await gateway.sweep().object.alarm();
  expect(await stored()).toEqual([ID(1)]);
  await object.cancel();
  await gateway.settle(batch);
  await gateway.sweep().object.alarm();
  expect((await stored()).includes(ID(1))).toBe(false);
});

it('parts of an upload go when it is too late or given up; the upload itself a day later', async () => {
  const upload = (id: string, status: string) => {
    const times = { created_at: gateway.now, expires_at: gateway.now + 3_600_000 };
    gateway.insert('uploads', {
      id,
      owner: 'key:k',
      created_by: 'k',
      purpose: 'batch',
      filename: 'f',
      bytes: 6,
      status,
      ...times,
    });
  };
  const part = async (id: string, of: string, file: string) => {
    await bytes(file, 0);
    gateway.insert('upload_parts', { id, upload_id: of, file_id: file, bytes: 3, created_at: gateway.now });
  };
  upload('upload_given_up', 'cancelled');
  await part('part_1', 'upload_given_up', ID(1));
  upload('upload_late', 'pending');
  await part('part_2', 'upload_late', ID(2));
  await gateway.sweep().object.alarm();
  expect([rows('upload_parts'), await stored()]).toEqual([['part_2'], [ID(2)]]);
  gateway.now += 3_600_001;
  await gateway.sweep().object.alarm();
  expect([rows('upload_parts'), await stored(), rows('uploads')]).toEqual([[], [], ['upload_given_up', 'upload_late']]);
  gateway.now += DAY_MS;
  await gateway.sweep().object.alarm();
  expect(rows('uploads')).toEqual([]);
});

it('bytes without a row go after a day, also those of an upload that was cut off; young ones stay', async () => {
  await gateway.input(ID(1), [lineOf('a')]);
  await bytes(ID(2), 25 * 3_600_000);
  await bytes(ID(3), 3_600_000);
  await bytes(`${ID(4)}.part`, 25 * 3_600_000);
  await bytes(`${ID(5)}.part`, 3_600_000);
  await gateway.sweep().object.alarm();
  expect(await stored()).toEqual([ID(1), ID(3)]);
  expect(await gateway.store.dropUnfinished(gateway.now)).toBe(1);
});

it('a store whose files are mostly unknown is another gateway’s: none is deleted, and the log says so', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  await gateway.input(ID(1), [lineOf('a')]);
  for (let i = 2; i < 40; i++) await bytes(ID(i), 25 * 3_600_000);
  await gateway.sweep().object.alarm();
  expect(await stored()).toHaveLength(39);
  expect(String(said.mock.calls.at(-1))).toContain('38 of 39 stored files are unknown to this gateway');
  said.mockRestore();
});

it('a store that is away keeps what it has, and the sweep comes again', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  await gateway.input(ID(1), [lineOf('a')]);
  gateway.now += 31 * DAY_MS;
  const { object, context } = gateway.sweep();
  const remove = gateway.store.delete;
  gateway.store.delete = () => Promise.reject(new FileStoreError('unavailable', 'away'));
  await object.alarm();
  expect(context.alarmAt).toBeGreaterThan(gateway.now);
  // The row stays, because the next sweep finds the file by it.
  expect(rows('files')).toEqual([ID(1)]);
  gateway.store.delete = remove;
  gateway.now += 600_000;
  await object.alarm();
  expect(await stored()).toEqual([]);
  said.mockRestore();
});

it('of many files that expire while the store is away none is left in it', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  for (let i = 1; i <= 30; i++) await gateway.input(ID(i), [lineOf('a')]);
  gateway.database.rows('UPDATE files SET expires_at = ? WHERE id <= ?', [gateway.now, ID(20)]);
  const remove = gateway.store.delete;
  let asked = 0;
  gateway.store.delete = (id) =>
    ++asked === 5 ? Promise.reject(new FileStoreError('unavailable', 'away')) : remove.call(gateway.store, id);
  const { object } = gateway.sweep();
  await object.alarm();
  gateway.now += 2 * DAY_MS;
  await object.alarm();
  expect([rows('files').length, await stored()]).toEqual([10, Array.from({ length: 10 }, (_, i) => ID(21 + i))]);
  said.mockRestore();
});

it('of more open batches than one sweep looks at each is looked at, and one that fails keeps neither the others nor the rest of the sweep', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const name = (at: number) => `batch_${String(at).padStart(24, '0')}`;
  for (let at = 0; at < 1_001; at++)
    gateway.insert('batches', {
      id: name(at),
      owner: 'key:k',
      created_by: 'k',
      created_at: at,
      open: 1,
      summary: '{}',
    });
  const nudged: string[] = [];
  gateway.env.BATCH = {
    getByName: (id: string) => ({
      nudge: async () => {
        nudged.push(id);
        if (id === name(7)) throw new Error('it is lost');
      },
    }),
  } as never;
  await gateway.input(ID(1), [lineOf('a')]);
  await bytes(ID(2), 25 * 3_600_000);
  const { object } = gateway.sweep();
  await object.alarm();
  expect(await stored()).toEqual([ID(1)]);
  expect(String(said.mock.calls)).toContain('1 of 1000 open batches did not answer');
  await object.alarm();
  expect(nudged.slice(1_000)).toEqual([name(1_000)]);
  await object.alarm();
  expect(nudged.slice(1_001, 1_003)).toEqual([name(0), name(1)]);
  said.mockRestore();
});

it('it sleeps where nothing is stored, and wakes with the first file', async () => {
  const { object, context } = gateway.sweep();
  await object.alarm();
  expect(context.alarmAt).toBeNull();
  await object.wake();
  const at = context.alarmAt;
  expect(at).toBeGreaterThan(gateway.now);
  gateway.now += 1_000;
  await object.wake();
  expect(context.alarmAt).toBe(at);
});

it('a batch whose alarm was lost goes on, and a list that was not told of an end is', async () => {
  const size = await gateway.input(ID(1), [lineOf('a')]);
  const batch = 'batch_000000000000000000000000';
  const { object, context } = gateway.batch(batch);
  const summary = await object.create(specOf(batch, { inputFileId: ID(1), inputBytes: size }));
  gateway.insert('batches', {
    id: batch,
    owner: 'key:k',
    created_by: 'k',
    created_at: gateway.now,
    open: 1,
    summary: JSON.stringify(summary),
  });
  context.alarmAt = null;
  await gateway.sweep().object.alarm();
  expect(context.alarmAt).not.toBeNull();
  const { DB } = gateway.env;
  gateway.env.DB = undefined as never;
  await object.cancel();
  await gateway.settle(batch);
  gateway.env.DB = DB;
  expect(object.show()?.status).toBe('cancelled');
  await gateway.sweep().object.alarm();
  const [row] = gateway.database.rows('SELECT open, summary FROM batches', []);
  expect([row?.open, JSON.parse(String(row?.summary)).status]).toEqual([0, 'cancelled']);
});
