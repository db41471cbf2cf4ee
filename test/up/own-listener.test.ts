/** While the user's gateway is down, another user's program may listen at its port. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { readPrivateFile, writePrivateFile } from '../../node/private-file.ts';
import { LocalGateway } from '../../up/gateway/local-gateway.ts';
import { isOwnListener, ownersOf } from '../../up/gateway/own-listener.ts';
import { atEnd, endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';

const OTHER_UID = 65_534;
const NO_OTHER_USER = process.getuid?.() === 0 ? undefined : 'only root can start a program of another user';

/** Prints each request's Authorization. */
const THIEF = `require('node:http').createServer((request, response) => {
  console.log('asked with', request.headers.authorization);
  response.end('{}');
}).listen(Number(process.argv[1]), '127.0.0.1', () => console.log('listens'))`;

afterEach(endAll);

it('a port belongs to the user whose program listens there, and without a listener to no user', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await eventually('it listens', 10_000, () => server.listening || undefined);
  const address = server.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  expect(await isOwnListener(port)).toBe(true);
  await new Promise((resolve) => server.close(resolve));
  expect(await isOwnListener(port)).toBe(false);
});

it('reads listeners of one port and address alone', () => {
  const line = (local: string, state: string, uid: number) =>
    `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000 ${uid}        0 1 1 0 100 0 0 10 0`;
  const table = [
    '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when lasting   uid  timeout inode',
    line('0100007F:2253', '0A', 1_000),
    line('0100007F:2253', '01', 1_001),
    line('0200007F:2253', '0A', 1_002),
    line('0100007F:0050', '0A', 1_003),
  ].join('\n');
  expect(ownersOf(table, 0x2253)).toEqual([1_000]);
  expect(ownersOf(table, 80)).toEqual([1_003]);
  expect(ownersOf('', 80)).toEqual([]);
});

it.skipIf(NO_OTHER_USER !== undefined)(
  `another user's program at the remembered port gets no key${NO_OTHER_USER === undefined ? '' : ` (${NO_OTHER_USER})`}`,
  async () => {
    const state = await temporaryDirectory('otela-up');
    const port = await freePort();
    const thief = new Managed([NODE, '-e', THIEF, String(port)], { uid: OTHER_UID, gid: OTHER_UID, cwd: '/' });
    atEnd(() => thief.stop());
    await thief.line(/listens/, 20_000);
    await mkdir(join(state, 'gateway'));
    writePrivateFile(join(state, 'gateway/admin.key'), 'admin-key-of-this-user\n');
    writePrivateFile(join(state, 'gateway.json'), JSON.stringify({ port, pid: thief.pid }));
    const gateway = new LocalGateway(state);
    expect(await gateway.runningUrl()).toBeUndefined();
    await gateway.stop();
    // The program listens, and answers a request without the key.
    await (await fetch(`http://127.0.0.1:${port}/`)).text();
    await thief.line(/asked with undefined/, 20_000);
    expect(thief.output.match(/asked with/g)).toHaveLength(1);
    expect(thief.child.exitCode).toBeNull();
  },
);

it('a gateway that stalls is waited for, and no second one starts', async () => {
  const state = await temporaryDirectory('otela-up');
  let asked = 0;
  const server = createServer((_, response) => {
    asked += 1;
    response.writeHead(asked > 4 ? 200 : 503).end('{}');
  }).listen(0, '127.0.0.1');
  atEnd(() => void server.close());
  await eventually('it listens', 10_000, () => server.listening || undefined);
  const { port } = server.address() as AddressInfo;
  await mkdir(join(state, 'gateway'));
  writePrivateFile(join(state, 'gateway/admin.key'), 'admin-key-of-this-user\n');
  const file = JSON.stringify({ port, pid: process.pid, key: 'key-of-this-user' });
  writePrivateFile(join(state, 'gateway.json'), file);
  const gateway = new LocalGateway(state);
  await gateway.ensure();
  expect(gateway.port).toBe(port);
  expect(readPrivateFile(join(state, 'gateway.json'))).toBe(file);
  expect(existsSync(join(state, 'gateway.log'))).toBe(false);
});
