/** A command with a long wait survives a gateway that fails, breaks off its responses, or is unreachable. */
import { writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { askGateway, outlasting, targetAt } from '../../../gateway/cli/api-client.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const BREAKS: Record<string, (response: ServerResponse) => void> = {
  'answers 500': (response) => response.writeHead(500).end('{"error":{"message":"a moment"}}'),
  'answers 503 with a page': (response) => response.writeHead(503).end('<html>'),
  'breaks off its answer': (response) => {
    response.writeHead(200, { 'content-length': '1000' }).write('{"data":');
    setImmediate(() => response.destroy());
  },
  'says half of it': (response) => response.end('{"data":'),
  'closes the connection': (response) => void response.destroy(),
  'never ends its answer': (response) => {
    const piece = Buffer.alloc(1 << 20, 'x');
    const write = () => {
      while (!response.destroyed && response.write(piece));
      response.once('drain', write);
    };
    write();
  },
  refuses: (response) => response.writeHead(403).end('{"error":{"message":"not you"}}'),
};

async function gatewayThat(breaks: (response: ServerResponse) => void) {
  let asked = 0;
  const server = createServer((_, response) => {
    asked += 1;
    if (asked > 2) response.end('{"data":[]}');
    else breaks(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  const keyFile = join(await temporaryDirectory(), 'key');
  await writeFile(keyFile, 'sk-key');
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  return targetAt('/admin/nodes', { url, 'key-file': keyFile, json: false });
}

const FINAL = ['refuses', 'never ends its answer'];

it.each(Object.entries(BREAKS).filter(([name]) => !FINAL.includes(name)))('a gateway %s twice', async (_, breaks) => {
  const target = await gatewayThat(breaks);
  expect(await outlasting(() => askGateway(target, 'GET', ''), 1)).toEqual({ data: [] });
});

it('a refusal is not waited for', async () => {
  const target = await gatewayThat(BREAKS.refuses ?? (() => {}));
  await expect(outlasting(() => askGateway(target, 'GET', ''), 1)).rejects.toThrow('not you');
});

it('a response without an end is refused, not kept', async () => {
  const target = await gatewayThat(BREAKS['never ends its answer'] ?? (() => {}));
  await expect(askGateway(target, 'GET', '')).rejects.toThrow('sent more than 64 MiB');
});
