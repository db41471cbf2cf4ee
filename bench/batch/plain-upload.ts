/**
 * A server with the minimum work for an upload: a file, its SHA-256, and JSON.parse of each line. Prints its address.
 */
import { createHash } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

const directory = process.argv[2] ?? '.';

const server = createServer(async (asked, answer) => {
  const path = join(directory, `otela-plain-${process.pid}`);
  const handle = await open(path, 'w');
  const hash = createHash('sha256');
  let rest: Buffer = Buffer.alloc(0);
  let lines = 0;
  for await (const piece of asked as AsyncIterable<Buffer>) {
    hash.update(piece);
    await handle.write(piece);
    let from = 0;
    for (let at = piece.indexOf(10); at !== -1; at = piece.indexOf(10, from)) {
      const line = Buffer.concat([rest, piece.subarray(from, at)]);
      if (line.toString().trim() !== '') JSON.parse(line.toString());
      lines += 1;
      rest = Buffer.alloc(0);
      from = at + 1;
    }
    rest = Buffer.concat([rest, piece.subarray(from)]);
  }
  await handle.sync();
  await handle.close();
  await rm(path);
  answer.end(`${lines} ${hash.digest('hex')}`);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
