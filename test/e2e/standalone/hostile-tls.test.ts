/** TLS that no honest client speaks, and gateways with another host's certificate. */

import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { OPENSSL, selfSigned } from '../../support/certificate.ts';
import { atEnd, endAll, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const READY_MS = 30_000;
const ANSWER_MS = 20_000;

afterAll(endAll);

interface Seen {
  protocol: string | undefined;
  alpn: string | false | null;
  answer: string;
}

/** Does a handshake with `options`, then sends a request. Resolves with undefined if there was no response. */
function ask(
  port: number,
  options: ConnectionOptions,
  request = 'GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
) {
  return new Promise<Seen | undefined>((resolve) => {
    let secured: TLSSocket | undefined;
    let answer = '';
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...options }, () => {
      secured = socket;
      socket.write(request);
    });
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.on('data', (bytes: Buffer) => {
      answer += bytes.toString('latin1');
    });
    socket.on('error', () => {});
    const [protocol, alpn] = [() => secured?.getProtocol() ?? undefined, () => secured?.alpnProtocol ?? false];
    let seen: Omit<Seen, 'answer'> | undefined;
    socket.on('secureConnect', () => {
      seen = { protocol: protocol(), alpn: alpn() };
    });
    socket.on('close', () => resolve(seen === undefined ? undefined : { ...seen, answer }));
  });
}

/** The response to bytes that are not a handshake. */
function say(port: number, pieces: readonly Buffer[]): Promise<Buffer> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const socket = connectTcp(port, '127.0.0.1', () => {
      for (const piece of pieces) socket.write(piece);
    });
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.on('data', (bytes: Buffer) => void parts.push(bytes));
    socket.on('error', () => {});
    socket.on('close', () => resolve(Buffer.concat(parts)));
  });
}

describe.skipIf(!OPENSSL)('the socket of a gateway', () => {
  let port = 0;
  const works = async () => expect((await ask(port, {}))?.answer).toMatch(/^HTTP\/1\.1 200/);
  beforeAll(async () => {
    const dir = await temporaryDirectory();
    const { cert, key } = selfSigned(dir, 'gateway');
    const files = ['--data', join(dir, 'data'), '--tls-cert', cert, '--tls-key', key];
    const served = new Managed([NODE, GATEWAY_MAIN, 'serve', '--port', '0', ...files]);
    const [, found] = await served.line(/otela-gateway ready https:\/\/\S+:(\d+)/, READY_MS);
    port = Number(found);
  });

  it.each<[string, ConnectionOptions]>([
    ['no server name', {}],
    ['the name of another server', { servername: 'evil.example' }],
    ['a name of 255 characters', { servername: `${'a.'.repeat(126)}abc` }],
    ['a name with what no host has', { servername: '<script>' }],
    ['HTTP/1.1', { ALPNProtocols: ['http/1.1'] }],
    ['HTTP/2 first', { ALPNProtocols: ['h2', 'http/1.1'] }],
    ['no protocol', { ALPNProtocols: [] }],
    ['a ticket of another session', { session: Buffer.from('30820000', 'hex') }],
  ])('a client with %s is served HTTP/1.1', async (_, options) => {
    const seen = await ask(port, options);
    expect(seen?.answer).toMatch(/^HTTP\/1\.1 200/);
    expect(['http/1.1', false]).toContain(seen?.alpn);
  });

  it.each<[string, ConnectionOptions]>([
    ['HTTP/2 alone', { ALPNProtocols: ['h2'] }],
    ['a protocol of another service', { ALPNProtocols: ['acme-tls/1'] }],
    ['ciphers without authentication', { ciphers: 'aNULL:@SECLEVEL=0', maxVersion: 'TLSv1.2' }],
    ['ciphers without encryption', { ciphers: 'eNULL:@SECLEVEL=0', maxVersion: 'TLSv1.2' }],
    ['triple DES', { ciphers: '3DES:@SECLEVEL=0', maxVersion: 'TLSv1.2' }],
    ['keys without forward secrecy', { ciphers: 'kRSA:@SECLEVEL=0', maxVersion: 'TLSv1.2' }],
  ])('a client with %s gets no connection', async (_, options) => {
    expect(await ask(port, options).catch(() => undefined)).toBeUndefined();
    await works();
  });

  const hello = Buffer.from('160301000a010000060303', 'hex');
  it.each<[string, Buffer[]]>([
    ['a request in clear', [Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n\r\n')]],
    ['noise', [Buffer.from(Array.from({ length: 4_096 }, (_, n) => (n * 31) % 251))]],
    ['half a hello', [hello, Buffer.alloc(7)]],
    ['a record that is longer than any', [Buffer.from('160303ffff', 'hex'), Buffer.alloc(65_535)]],
    ['an empty record', [Buffer.from('1603030000', 'hex')]],
    ['application data before a hello', [Buffer.from('170303000568656c6c6f', 'hex')]],
    ['an alert', [Buffer.from('15030300020228', 'hex')]],
    ['a heartbeat', [Buffer.from('18030300030140000000', 'hex')]],
    ['a hello of SSL 2', [Buffer.from('802e0100020015000000100100800200800300800400800500800600400700c0', 'hex')]],
  ])('%s gets no byte of the service, and stops nothing', async (_, pieces) => {
    expect((await say(port, pieces)).toString('latin1')).not.toMatch(/HTTP|healthz/);
    await works();
  });

  it('a client negotiates no connection anew, and disturbs no other one', async () => {
    const times = await new Promise<number>((resolve) => {
      let count = 0;
      const options = { port, host: '127.0.0.1', rejectUnauthorized: false, maxVersion: 'TLSv1.2' } as const;
      const socket = connect(options, () => {
        const again = (): void => {
          if (count >= 50 || socket.destroyed) return void socket.destroy();
          socket.renegotiate({}, (error) => {
            if (error !== null && error !== undefined) return void socket.destroy();
            count++;
            again();
          });
        };
        again();
      });
      socket.on('error', () => {});
      socket.on('close', () => resolve(count));
      socket.setTimeout(ANSWER_MS, () => socket.destroy());
    });
    expect(times).toBe(0);
    await works();
  });
});

describe.skipIf(!OPENSSL)('an agent', () => {
  it.each<[string, string[], number]>([
    ['of another name', ['DNS:evil.example'], 2],
    ['of another address', ['IP:127.0.0.2'], 2],
    ['without a name', [], 2],
  ])('shows no token to a gateway with a certificate %s', async (_, names, days) => {
    const dir = await temporaryDirectory();
    const { cert, key } = selfSigned(dir, 'localhost', names, days);
    const heard: string[] = [];
    const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
      heard.push(`${request.url} ${request.headers.authorization}`);
      response.end('{}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    atEnd(() => void server.close());
    const gateway = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    // The certificate is trusted as an authority, so only its name is wrong.
    const options = { token: 'otela-join-secret', engineUrl: 'http://127.0.0.1:9', env: { NODE_EXTRA_CA_CERTS: cert } };
    const agent = await startAgent({ gateways: [gateway], ...options });
    await agent.line(/certificate|does not match|altnames/i, READY_MS);
    expect(heard).toEqual([]);
  });
});
