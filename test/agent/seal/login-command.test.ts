/** `otela login` if its disk or its gateway has a fault. */
import { mkdirSync } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { loginCommand } from '../../../clients/otela/login-command.ts';
import { main } from '../../../clients/otela/main.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

afterAll(endAll);

/** The output of `otela login` at a mock gateway with these answers. */
async function login(
  file: string,
  { page = 'https://gw.test/device', name = 'Ada', asked = (_path: string) => {} } = {},
): Promise<string[]> {
  const answers: Record<string, object> = {
    '/login/device': {
      device_code: 'd',
      user_code: 'BCD-FGH-JKL',
      verification_uri: page,
      expires_in: 60,
      interval: 0.01,
    },
    '/login/device/token': { access_token: 'sk-otela-1' },
    '/admin/me': { name },
  };
  const server = createServer((request, response) => {
    asked(request.url ?? '');
    response.setHeader('connection', 'close');
    response.end(JSON.stringify(answers[request.url ?? '']));
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const lines: string[] = [];
  try {
    const { port } = server.address() as AddressInfo;
    const out = { print: (line: string) => void lines.push(line) } as unknown as Parameters<typeof loginCommand>[1];
    await loginCommand({ gateway: `http://127.0.0.1:${port}`, file }, out);
  } finally {
    server.close();
  }
  return lines;
}

it('takes no notice of what a process of the same number left when its disk was full', async () => {
  const file = join(await temporaryDirectory('otela-login'), 'key');
  await writeFile(`${file}.${process.pid}`, '');
  await login(file);
  expect(await readFile(file, 'utf8')).toBe('sk-otela-1\n');
});

it('leaves nothing of a key that cannot be put in its place', async () => {
  const directory = await temporaryDirectory('otela-login');
  const asked = () => void mkdirSync(join(directory, 'key', 'full'), { recursive: true });
  await expect(login(join(directory, 'key'), { asked })).rejects.toThrow(/EISDIR|ENOTEMPTY|EEXIST/);
  expect(await readdir(directory)).toEqual(['key']);
});

it.each(['', '/', '/key/key'])('asks for no key where none can be stored: "%s"', async (end) => {
  const directory = await temporaryDirectory('otela-login');
  await writeFile(join(directory, 'key'), '');
  const asked: string[] = [];
  const storing = login(directory + end, { asked: (path) => void asked.push(path) });
  await expect(storing).rejects.toThrow(/^--key-file: /);
  expect([asked, await readdir(directory)]).toEqual([[], ['key']]);
});

it('prints no word of a gateway that would drive the terminal', async () => {
  const file = join(await temporaryDirectory('otela-login'), 'key');
  const lines = await login(file, { page: 'https://gw.test/\u001b[2J', name: 'Ada\r\u009b1A' });
  expect(lines.join('')).not.toMatch(/\p{Cc}/u);
});

it.each(['http://gw.test', 'http://10.0.0.1:8080/v1', 'http://127.0.0.1.gw.test', 'http://localhost.gw.test'])(
  'asks %s for no key, which would come unencrypted, unless told to',
  async (gateway) => {
    const complaints: string[] = [];
    const out = { print: () => {}, complain: (line: string) => void complaints.push(line) };
    const file = join(await temporaryDirectory('otela-login'), 'deep', 'key');
    expect(await main(['login', '--gateway', gateway, '--key-file', file], out)).not.toBe(0);
    expect(complaints.join()).toContain('is not encrypted');
    // Refused before any request is sent and any file is written.
    await expect(readdir(join(file, '..'))).rejects.toThrow('ENOENT');
  },
);

it.each([
  [404, '<!doctype html>', 2, /is not a gateway: HTTP 404/],
  [200, '{"ok":true}', 2, /is not a gateway: its response/],
  [
    200,
    '{"device_code":"d","user_code":"u","verification_uri":"https://gw.test","expires_in":60,"interval":1e9}',
    2,
    /is not a gateway: its response/,
  ],
  [502, '<html>', 69, /no gateway answers: HTTP 502/],
])('says of what answers %i %s that it is none', async (status, text, code, reason) => {
  const server = createServer((_, response) => {
    response.writeHead(status, { connection: 'close' }).end(text);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const words: string[] = [];
  const out = { print: () => {}, complain: (line: string) => void words.push(line) };
  const file = join(await temporaryDirectory('otela-login'), 'key');
  const { port } = server.address() as AddressInfo;
  expect(await main(['login', '--gateway', `http://127.0.0.1:${port}`, '--key-file', file], out)).toBe(code);
  server.close();
  expect(words).toEqual([expect.stringMatching(reason)]);
});

it('says where no gateway answers, and ends with 69', async () => {
  const words: string[] = [];
  const out = { print: () => {}, complain: (line: string) => void words.push(line) };
  const file = join(await temporaryDirectory('otela-login'), 'key');
  expect(await main(['login', '--gateway', 'http://127.0.0.1:9', '--key-file', file], out)).toBe(69);
  expect(words).toEqual([expect.stringMatching(/^otela: no gateway answers at http:\/\/127\.0\.0\.1:9: /)]);
});
