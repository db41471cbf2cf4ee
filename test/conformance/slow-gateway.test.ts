/** A command calls a healthy but slow gateway. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { askGateway } from '../../gateway/cli/api-client.ts';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test('an answer that takes three minutes is waited for, and the command says for what', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'slow-gateway-'));
  const keyFile = join(directory, 'key');
  await writeFile(keyFile, 'sk-otela-g-test', { mode: 0o600 });
  const asked = Promise.withResolvers<void>();
  let answer = () => {};
  const server = createServer((_request, response) => {
    answer = () => response.end('{"id":"key_1"}');
    asked.resolve();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const told = vi.spyOn(console, 'error').mockImplementation(() => {});
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const target = { path: '/admin/keys', url: `http://127.0.0.1:${port}`, keyFile, json: true };
  const answered = askGateway(target, 'POST', '', { name: 'one' });
  await asked.promise;
  vi.advanceTimersByTime(180_000);
  answer();
  expect(await answered).toEqual({ id: 'key_1' });
  expect(told.mock.calls[0]?.[0]).toBe(`127.0.0.1:${port} has not answered POST /admin/keys for 5 s; waiting`);
  expect(told).toHaveBeenCalledTimes(5);
  server.close();
  await rm(directory, { recursive: true });
});
