/** The message of `serve` if it cannot start: it names the cause and the remedy, and is not a library's error. */
import { readdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Gateway } from '../support/gateway.ts';
import { HOST } from '../support/host.ts';
import { endAll, freePort } from '../support/processes.ts';

afterAll(endAll);

/** Its output until it ends, and its exit code. */
async function failing(options: { data: string; port?: number; args?: string[] }) {
  const port = options.port ?? (await freePort());
  const { process } = HOST.start({ data: options.data, host: '127.0.0.1', port, args: options.args ?? [] });
  const { code } = await process.end(50_000);
  return { code, output: process.output };
}

/** Overwrites `bytes` bytes of a file with nonsense, from `at`. */
async function damage(file: string, at: number, bytes: number): Promise<void> {
  const handle = await open(file, 'r+');
  await handle.write(Buffer.alloc(bytes, 0xa5), 0, bytes, at);
  await handle.close();
}

it('a damaged database is named, with the command that helps, and is left as it is', async () => {
  const gateway = await Gateway.start();
  await gateway.createKey();
  await gateway.stop();
  const files = readdirSync(gateway.data, { recursive: true, encoding: 'utf8' });
  const databases = files.filter((file) => file.endsWith('.sqlite'));
  for (const file of databases) await damage(join(gateway.data, file), 0, 100);
  const { code, output } = await failing({ data: gateway.data });
  expect(code).not.toBe(0);
  const named = /(\S+) is damaged/.exec(output)?.[1] ?? '';
  expect(databases.map((file) => join(gateway.data, file))).toContain(named);
  expect(output).toContain('otela-gateway restore');
  expect(output).not.toMatch(/\n\s+at /);
});
