/**
 * Files in R2, in the Worker's own runtime: the contract of test/e2e/files/store-contract.test.ts for the stores of the
 * Node host.
 */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { FileTooLarge } from '../../../gateway/files/file-store.ts';
import { R2FileStore } from '../../../gateway/hosts/worker/r2-file-store.ts';

const MIB = 1024 * 1024;
const ID = (at: number) => `file-${String(at).padStart(24, '0')}`;

function store(): R2FileStore {
  if (env.BUCKET === undefined) throw new Error('no bucket');
  return new R2FileStore(env.BUCKET);
}
async function* pieces(count: number, fail?: Error): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count; i++) yield new Uint8Array(MIB).fill(i);
  if (fail !== undefined) throw fail;
}
async function bytesOf(content: AsyncIterable<Uint8Array> | undefined): Promise<number[] | undefined> {
  if (content === undefined) return undefined;
  const all: number[] = [];
  for await (const piece of content) all.push(...piece);
  return all;
}

test('a file of several parts is there, whole and in ranges, until it is deleted', async () => {
  const files = store();
  expect(await files.put(ID(1), pieces(17), 100 * MIB)).toEqual({ bytes: 17 * MIB });
  expect(await bytesOf(await files.read(ID(1), { offset: 8 * MIB - 2, length: 4 }))).toEqual([7, 7, 8, 8]);
  expect(await bytesOf(await files.read(ID(1), { offset: 17 * MIB, length: 0 }))).toEqual([]);
  const listed: string[] = [];
  for await (const { id, modifiedMs } of files.list()) if (modifiedMs <= Date.now()) listed.push(id);
  expect(listed).toContain(ID(1));
  await files.delete(ID(1));
  expect(await files.read(ID(1))).toBeUndefined();
  expect(await files.read(ID(1), { offset: 0, length: 0 })).toBeUndefined();
});

test('nothing is there of a file that is too large, or whose content fails', async () => {
  const files = store();
  await expect(files.put(ID(2), pieces(10), 9 * MIB)).rejects.toBeInstanceOf(FileTooLarge);
  const gone = new Error('the client has gone');
  await expect(files.put(ID(3), pieces(10, gone), 100 * MIB)).rejects.toBe(gone);
  expect([await files.read(ID(2)), await files.read(ID(3))]).toEqual([undefined, undefined]);
});

test('a range beyond what is there is an error, not fewer bytes', async () => {
  const files = store();
  await files.put(ID(4), pieces(1), 100 * MIB);
  await expect(files.read(ID(4), { offset: MIB - 1, length: 2 })).rejects.toMatchObject({ code: 'damaged' });
  expect(await bytesOf(await files.read(ID(4), { offset: MIB - 1, length: 1 }))).toEqual([0]);
});
