/** Both ends of the relay without ssh: `otela-agent relay` as a process, and the end on the laptop in this one. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { afterEach, expect, it } from 'vitest';
import { addressToward } from '../../agent/host/address-toward.ts';
import { relayProxyUrl } from '../../agent/mesh/proxy-relay/relay-credentials.ts';
import { RelayLocation } from '../../agent/mesh/proxy-relay/relay-location.ts';
import { throughProxy } from '../../agent/tunnel/open-websocket.ts';
import { isPrivateAddress } from '../../node/private-address.ts';
import { openRelay } from '../../up/tunnel/relay-session.ts';
import { TUNNEL_URL, tunnelIdentity } from '../../up/tunnel/tunnel-identity.ts';
import { atEnd, endAll, temporaryDirectory } from '../support/processes.ts';
import { AGENT_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

const TOKEN = 'join-token-of-the-run';
const TARGET = new URL(TUNNEL_URL);

/** A server that sends back every byte, as the gateway. */
async function echo(): Promise<number> {
  const server = createServer((socket) => socket.on('error', () => {}).pipe(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const address = server.address();
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

/** What `otela up` does on the login node, with a process of this machine instead of ssh. */
async function relayOn(directory: string, ...where: string[]) {
  const tokenFile = join(directory, 'token');
  await writeFile(tokenFile, `${TOKEN}\n`, { mode: 0o600 });
  const flags = [
    '--gateway',
    TUNNEL_URL,
    '--token-file',
    tokenFile,
    '--pid-file',
    join(directory, 'relay.pid'),
    ...where,
  ];
  const identity = tunnelIdentity(directory);
  const gateway = await echo();
  const relay = await openRelay({
    ssh: {
      host: 'me@login',
      spawn: () => {
        const child = spawn(NODE, [AGENT_MAIN, 'relay', ...flags], { stdio: ['pipe', 'pipe', 'pipe'] });
        atEnd(() => void child.kill('SIGKILL'));
        return child;
      },
    },
    command: '',
    context: identity.context,
    port: () => gateway,
  });
  atEnd(relay.close);
  return { relay, certificate: identity.certificate };
}

/** A connection as an agent makes it, up to the gateway. */
async function agentConnection(address: string, token: string, ca: string) {
  const socket = await throughProxy(relayProxyUrl(address, 'otela:443', token), TARGET);
  const secure = tlsConnect({ socket, servername: TARGET.hostname, ca });
  await once(secure, 'secureConnect');
  return secure;
}

it('an agent with the token reaches the gateway over TLS; others get no byte', async () => {
  const directory = await temporaryDirectory();
  const { relay, certificate } = await relayOn(directory, '--toward', '127.0.0.1');
  const at = relay.address;
  expect(at).toMatch(/^127\.0\.0\.1:\d+$/);
  const agent = await agentConnection(at, TOKEN, certificate);
  // More than one window of HTTP/2 in both directions.
  const sent = Buffer.alloc(6 * 1024 * 1024, 'x');
  let received = 0;
  const all = new Promise<void>((resolve) => {
    agent.on('data', (piece: Buffer) => {
      received += piece.length;
      if (received === sent.length) resolve();
    });
  });
  agent.write(sent);
  await all;

  await expect(agentConnection(at, 'another token', certificate)).rejects.toThrow();
  // An imitated laptop is not trusted.
  const other = tunnelIdentity(await temporaryDirectory());
  await expect(agentConnection(at, TOKEN, other.certificate)).rejects.toThrow(/self-signed certificate/);
  const stranger = connect(Number(at.split(':')[1]), '127.0.0.1');
  const got: Buffer[] = [];
  stranger.on('data', (piece) => got.push(piece)).on('error', () => {});
  stranger.write('GET / HTTP/1.1\r\nhost: otela\r\n\r\n');
  await once(stranger, 'close');
  expect(got).toEqual([]);
});

it('a new relay of the run ends the earlier one, and agents find it by its file', async () => {
  const directory = await temporaryDirectory();
  const file = join(directory, 'relay');
  const location = new RelayLocation(file);
  expect(location.address).toBe('127.0.0.1:1');
  const first = await relayOn(directory, '--toward', '127.0.0.1', '--address-file', file);
  expect(location.address).toBe(first.relay.address);
  const second = await relayOn(directory, '--address', '127.0.0.1', '--address-file', file);
  expect(location.address).toBe(second.relay.address);
  await writeFile(file, 'not an address');
  expect(location.address).toBe(second.relay.address);
  const { error, byKillOrSsh } = await first.relay.ended;
  expect(error.message).toMatch(/^The relay on me@login ended/);
  expect(byKillOrSsh).toBe(false);
  const agent = await agentConnection(second.relay.address, TOKEN, second.certificate);
  agent.write('hi');
  expect(String((await once(agent, 'data'))[0])).toBe('hi');
  second.relay.close();
  await once(agent, 'close');
});

it('a relay refuses a public address with a way on', async () => {
  const directory = await temporaryDirectory();
  await expect(relayOn(directory, '--address', '203.0.113.7')).rejects.toThrow(/public address[\s\S]*--relay-address/);
});

it('private addresses are known, and the address toward a machine is found', async () => {
  const addresses = [
    '10.1.2.3',
    '172.31.0.1',
    '192.168.1.1',
    '100.64.0.1',
    'fd00::1',
    '172.32.0.1',
    '8.8.8.8',
    '2001:db8::1',
    '::ffff:8.8.8.8',
    'x',
  ];
  expect(addresses.filter(isPrivateAddress)).toEqual(addresses.slice(0, 5));
  expect(await addressToward('127.0.0.1')).toBe('127.0.0.1');
});
