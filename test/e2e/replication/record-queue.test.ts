/** The queue of records that a follower sends to the primary. */
import { expect, test } from 'vitest';
import { openReplicationFile } from '../../../gateway/hosts/node/replication/replication-file.ts';
import { RecordQueue } from '../../../gateway/hosts/node/replication/usage-record-queue.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const MIB = 1024 * 1024;

test('a message has at most 4 MiB, or one record; every record goes out once, in order', async () => {
  const queue = new RecordQueue(openReplicationFile(await temporaryDirectory('otela-hand-over')));
  const sizes = [MIB, MIB, 3 * MIB, 6 * MIB, 1, 1];
  for (const [at, size] of sizes.entries()) queue.add('usage', String(at), 'x'.repeat(size));
  const messages: string[][] = [];
  for (let items = queue.oldest(); items.length > 0; items = queue.oldest()) {
    messages.push(items.map(({ name }) => name));
    queue.done(items.at(-1)?.position ?? 0);
  }
  expect(messages).toEqual([['0', '1'], ['2'], ['3'], ['4', '5']]);
  expect(queue.waiting).toBe(0);
});
