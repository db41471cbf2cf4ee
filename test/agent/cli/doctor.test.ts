import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { checkGateway } from '../../../agent/cli/doctor/gateway-check.ts';
import { main } from '../../../agent/cli/main.ts';
import { postToGateway } from '../../../agent/tunnel/gateway-request.ts';

const TOKEN = `otela-join-${'a'.repeat(43)}`;
const REFUSAL = JSON.stringify({
  error: { message: 'No join token was given.', type: 'x', param: null, code: 'invalid_api_key' },
});

let directory: string;
const servers: Server[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'otela-doctor-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true });
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

/** A mock of a gateway, or of another program that answers at its address. */
async function answering(status: number, body: string, headers: Record<string, string> = {}): Promise<string> {
  const server = createServer((_request, response) => response.writeHead(status, headers).end(body));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}

/** A proxy that connects to the requested address (200), or answers CONNECT with another status. */
async function proxyThatAnswers(status: number): Promise<string> {
  const server = createServer();
  server.on('connect', (request, socket) => {
    if (status !== 200) return socket.end(`HTTP/1.1 ${status} No\r\nconnection: close\r\n\r\n`);
    const [host, port] = (request.url ?? '').split(':');
    const onward = connect({ host: host ?? '', port: Number(port) }, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [onward, socket]) end.on('error', () => {});
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}

const findingsSchema = z.array(
  z.object({ what: z.string(), verdict: z.string(), found: z.string(), fix: z.string().optional() }),
);

async function doctor(args: string[], env: Record<string, string> = {}) {
  let out = '';
  const stdout = new Writable({
    write(chunk, _encoding, done) {
      out += String(chunk);
      done();
    },
  });
  const all = { PATH: process.env.PATH ?? '', HOME: directory, TMPDIR: directory, ...env };
  const code = await main(['doctor', '--json', ...args], all, { stdout, stderr: stdout });
  const findings = findingsSchema.parse(JSON.parse(out));
  return { code, of: (what: string) => findings.find((one) => one.what.startsWith(what)) };
}

function withToken(text = TOKEN): string[] {
  const file = join(directory, 'token');
  writeFileSync(file, text, { mode: 0o600 });
  return ['--token-file', file];
}

it('finds nothing in the way where nothing is', async () => {
  const gateway = await answering(401, REFUSAL);
  const { code, of } = await doctor([
    '--gateway',
    gateway,
    ...withToken(),
    '--engine-port',
    '8000',
    '--',
    'bash',
    '-c',
    'true',
  ]);
  expect(of('gateway')).toMatchObject({ verdict: 'good', found: 'answers, directly' });
  expect(of('clock')).toMatchObject({ verdict: 'good' });
  expect(of('token')).toMatchObject({ verdict: 'good' });
  expect(of('engine')).toMatchObject({ verdict: 'good', found: 'found bash' });
  expect(of('state')).toMatchObject({ verdict: 'good' });
  expect(code).toBe(0);
});

it('names each obstacle with its fix, and ends with 70', async () => {
  const portal = await answering(200, '<html>Please log in</html>');
  const { code, of } = await doctor([
    '--gateway',
    portal,
    ...withToken('sk-otela-x'),
    '--engine-port',
    '8000',
    '--',
    'no-such-engine',
  ]);
  expect(code).toBe(70);
  expect(of('gateway')).toMatchObject({
    verdict: 'bad',
    found: expect.stringContaining('not an OpenTela gateway'),
    fix: expect.stringContaining('--gateway'),
  });
  expect(of('token')).toMatchObject({ verdict: 'bad', fix: expect.stringContaining('tokens create') });
  expect(of('engine')).toMatchObject({ verdict: 'bad', fix: expect.stringContaining('module') });
});

it('says whether functions have a Python and a sandbox', async () => {
  const gateway = await answering(401, REFUSAL);
  const start = ['--gateway', gateway, ...withToken(), '--allow-functions', 'all'];
  const { of } = await doctor(start);
  expect(of('functions')).toMatchObject({ verdict: 'good', found: expect.stringMatching(/^Python 3\.\d+ at \//) });
  expect(of('sandbox')?.found).toMatch(/^the kernel allows it$|all rights of this user: unshare/);
  const without = await doctor([...start, '--functions-python', '/no/python', '--functions-sandbox', 'off']);
  expect(without.of('functions')).toMatchObject({ verdict: 'bad', fix: expect.stringContaining('--functions-python') });
  expect(without.of('sandbox')).toMatchObject({ verdict: 'odd', found: expect.stringContaining('all rights') });
  expect(without.code).toBe(70);
});

it('settings that cannot be are one finding, and the rest is looked at all the same', async () => {
  const gateway = await answering(401, REFUSAL);
  const { code, of } = await doctor(['--cluster', 'Not an id', '--gateway', gateway]);
  expect(code).toBe(70);
  expect(of('settings')).toMatchObject({ verdict: 'bad' });
  expect(of('gateway')).toMatchObject({ verdict: 'good' });
  expect(of('GPUs')?.found).not.toContain('GPUs:');
});

it('an engine that another program starts must answer', async () => {
  const gateway = await answering(401, REFUSAL);
  const engine = await answering(200, JSON.stringify({ data: [{ id: 'm' }] }), { 'content-type': 'application/json' });
  const args = ['--gateway', gateway, ...withToken()];
  expect((await doctor([...args, '--engine-url', engine])).of('engine')).toMatchObject({
    verdict: 'odd',
    found: expect.stringContaining('serves m'),
    fix: expect.stringContaining('--fact quantization=bf16'),
  });
  const facts = ['--fact', 'quantization=bf16', '--fact', 'context=4096'];
  expect((await doctor([...args, ...facts, '--engine-url', engine])).of('engine')).toMatchObject({
    verdict: 'good',
    found: expect.stringContaining('serves m  ready  4096 tokens  bf16'),
  });
  const taken = await doctor([...args, '--engine-port', new URL(engine).port, '--', 'bash', '-c', 'true']);
  expect(taken.of('engine')).toMatchObject({ verdict: 'bad', found: expect.stringContaining('already') });
  const gone = await doctor([...args, '--engine-url', 'http://127.0.0.1:1']);
  expect(gone.of('engine')).toMatchObject({ verdict: 'bad', found: expect.stringContaining('nothing listens') });
});

it('tells a closed port, an unknown name, a proxy and an old gateway apart', async () => {
  const check = async (gateway: string, env: Record<string, string> = {}) =>
    (await checkGateway({ gateway: new URL(gateway), env, post: postToGateway, now: Date.now }))[0];
  expect(await check('http://127.0.0.1:1')).toMatchObject({
    verdict: 'bad',
    fix: expect.stringContaining('Nothing listens'),
  });
  expect(await check('http://no-such-host.invalid')).toMatchObject({ verdict: 'bad' });
  expect(await check(await answering(426, '{}'))).toMatchObject({
    verdict: 'bad',
    fix: expect.stringContaining('Upgrade'),
  });
  expect(await check(await answering(503, '{}'))).toMatchObject({ verdict: 'odd' });
  const proxied = await check('https://gw.example.org', { https_proxy: 'http://127.0.0.1:1' });
  expect(proxied).toMatchObject({
    verdict: 'bad',
    found: expect.stringContaining('127.0.0.1:1'),
    fix: expect.stringContaining('HTTPS_PROXY'),
  });
  const locked = await proxyThatAnswers(407);
  expect(await check('https://gw.example.org', { https_proxy: locked })).toMatchObject({
    verdict: 'bad',
    fix: expect.stringContaining('name:password@'),
  });
});

it('a gateway behind a relay is looked at through it', async () => {
  const gateway = await answering(401, REFUSAL);
  const relayed = async (relay: string) =>
    (await doctor(['--gateway', gateway, ...withToken(), '--relay', new URL(relay).host])).of('gateway');
  expect(await relayed(await proxyThatAnswers(200))).toMatchObject({
    verdict: 'good',
    found: expect.stringContaining('through the relay'),
  });
  expect(await relayed(await proxyThatAnswers(407))).toMatchObject({ fix: expect.stringContaining('join token') });
  expect(await relayed('http://127.0.0.1:1')).toMatchObject({ fix: expect.stringContaining('--offer-relay') });
});

it('the place for its state is tried, and left as it was', async () => {
  const { of } = await doctor(['--gateway', 'http://127.0.0.1:1', ...withToken()]);
  expect(of('state')).toMatchObject({ verdict: 'good' });
  expect(readdirSync(join(directory, 'otela-agent'))).toEqual([]);
  // Both fixed names exist and are open to all users, so only a random third name remains.
  const names = [...new Set(['otela-agent', `otela-agent-${process.getuid?.()}`])];
  for (const name of names) {
    mkdirSync(join(directory, name), { recursive: true });
    chmodSync(join(directory, name), 0o777);
  }
  const taken = await doctor(['--gateway', 'http://127.0.0.1:1', ...withToken()]);
  expect(taken.of('state')).toMatchObject({ verdict: 'good', found: expect.stringMatching(/otela-agent-\d+-\w+/) });
  // The mode of /proc lets root write, but the kernel creates no directory there.
  const refused = await doctor(['--gateway', 'http://127.0.0.1:1', ...withToken()], { TMPDIR: '/proc' });
  const place = process.getuid?.() === 0 ? 'bad' : 'good';
  expect(refused.of('state')?.verdict).toBe(place);
});

it('a clock that is minutes off is told, in which direction and by how much', async () => {
  const gateway = new URL(await answering(401, REFUSAL));
  const off = async (ms: number) =>
    (await checkGateway({ gateway, env: {}, post: postToGateway, now: () => Date.now() + ms })).find(
      ({ what }) => what === 'clock',
    );
  expect(await off(0)).toMatchObject({ verdict: 'good' });
  expect((await off(300_000))?.found).toMatch(/^(29[89]|30[01]) s ahead of/);
  expect((await off(-300_000))?.found).toMatch(/^(29[89]|30[01]) s behind/);
});
