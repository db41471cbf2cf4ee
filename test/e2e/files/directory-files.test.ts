/** The directory of files on a disk that is nearly full. */
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { DirectoryFileStore } from '../../../gateway/hosts/node/directory-file-store.ts';
import { mountFileSystem } from '../../support/file-system.ts';
import { endAll } from '../../support/processes.ts';

afterEach(endAll);

const MIB = 1024 * 1024;
const nameOf = (n: number) => `file-${String(n).padStart(24, '0')}`;

async function* zeros(bytes: number) {
  for (let left = bytes; left > 0; left -= 64 * 1024) yield new Uint8Array(Math.min(left, 64 * 1024));
}

it('a disk that takes a part of the last block keeps no part of the file', async (test) => {
  const disk = mountFileSystem({ sizeMiB: 4, kind: 'memory' });
  if (typeof disk === 'string') return test.skip(disk);
  const files = new DirectoryFileStore(join(disk.path, 'files'));
  await files.put(nameOf(1), zeros(MIB / 2), MIB);
  const tooLarge = files.put(nameOf(2), zeros(3.75 * MIB), 8 * MIB);
  await expect(tooLarge).rejects.toMatchObject({ name: 'FileStoreError', code: 'full' });
  expect(await files.read(nameOf(2))).toBeUndefined();
  expect(await files.put(nameOf(2), zeros(3 * MIB + 1), 8 * MIB)).toEqual({ bytes: 3 * MIB + 1 });
  let bytes = 0;
  for await (const piece of (await files.read(nameOf(2))) ?? []) bytes += piece.length;
  expect(bytes).toBe(3 * MIB + 1);
});
