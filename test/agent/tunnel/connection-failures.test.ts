/** Obstacles between an agent and its gateway: slow proxies, and pages that are not a gateway's. */
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { GatewayGossipSocket } from '../../../agent/mesh/gateway-gossip-socket.ts';
import { sessionIdentityOf } from '../../../agent/tunnel/session-identity.ts';
import { openTunnel } from '../../../agent/tunnel/tunnel.ts';
import type { TunnelRefusal } from '../../../agent/tunnel/tunnel-types.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { labTicket } from '../support/fake-admission.ts';

type HttpServer = ReturnType<typeof createServer>;

async function listening(server: HttpServer): Promise<URL> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

/** A gateway that answers each upgrade with `answer`, and counts them. */
async function gateway(answer: () => string) {
  const seen = { upgrades: 0 };
  const server = createServer();
  server.on('upgrade', (_request, socket) => {
    seen.upgrades++;
    socket.on('error', () => {});
    socket.end(answer());
  });
  return { url: await listening(server), seen };
}

/** An HTTP proxy that delays CONNECT. `asked` resolves when a CONNECT has arrived; `pass` lets it through. */
async function slowProxy() {
  const asked = Promise.withResolvers<void>();
  const pass = Promise.withResolvers<void>();
  const passed = Promise.withResolvers<void>();
  const server = createServer();
  const onConnect = async (request: IncomingMessage, socket: Duplex) => {
    socket.on('error', () => {});
    asked.resolve();
    await pass.promise;
    const [host, port] = String(request.url).split(':');
    const onward = connect(Number(port), host, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n', () => passed.resolve());
      onward.pipe(socket).pipe(onward);
    });
    onward.on('error', () => socket.destroy());
  };
  server.on('connect', (request, socket) => neverRejects(onConnect(request, socket)));
  return { url: await listening(server), asked: asked.promise, pass: () => pass.resolve(), passed: passed.promise };
}

function tunnelTo(url: URL, proxy?: URL) {
  const key = createSessionKey();
  const ticket = labTicket(key.publicKey);
  const heard: { refused: TunnelRefusal[]; over: string[]; connected: number } = {
    refused: [],
    over: [],
    connected: 0,
  };
  const lines: string[] = [];
  const tunnel = openTunnel({
    gateway: url,
    ticket: ticket.bytes,
    identity: sessionIdentityOf(ticket, key),
    update: () => new Uint8Array(),
    engine: () => undefined,
    proxy: () => proxy,
    log: (line) => lines.push(line),
    onRefused: (refusal) => heard.refused.push(refusal),
    onOver: (why) => heard.over.push(why),
    onConnected: () => void heard.connected++,
  });
  onTestFinished(() => tunnel.close());
  return { tunnel, heard, lines, ticket, key };
}

const page = (status: number, body: string) =>
  `HTTP/1.1 ${status} No\r\ncontent-type: text/html\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const envelope = (code: string) =>
  JSON.stringify({ error: { message: 'not you', type: 'invalid_request_error', param: null, code } });

it.each([
  ['a login page', 401, '<html>please log in</html>'],
  ['a firewall’s page', 403, '<html>blocked</html>'],
  ['a proxy’s JSON', 400, '{"error":{"message":"no","code":400}}'],
  ['a page about an upgrade', 426, ''],
  ['a page that is gone', 410, '<html>gone</html>'],
])('%s instead of the gateway (%s) ends nothing: the agent asks again', async (_what, status, body) => {
  const { url, seen } = await gateway(() => page(status, body));
  const { heard } = tunnelTo(url);
  await expect.poll(() => seen.upgrades, { timeout: 30_000 }).toBeGreaterThan(2);
  expect(heard).toEqual({ refused: [], over: [], connected: 0 });
});

/** Node reports its error in the same tick, as it does while the network is down or no descriptor is free. */
const UNREACHABLE = new URL('http://255.255.255.255:9');

it('a gateway that cannot be reached is tried again, however soon that is known', async () => {
  const { lines } = tunnelTo(UNREACHABLE);
  await expect.poll(() => lines.filter((line) => line.includes('again in')).length, { timeout: 30_000 }).toBe(3);
});

it('a delegate tells that its gateway cannot be reached, however soon that is known', async () => {
  const key = createSessionKey();
  const ticket = labTicket(key.publicKey);
  const closed = Promise.withResolvers<string>();
  const delegate = new GatewayGossipSocket({
    gateway: UNREACHABLE,
    identity: sessionIdentityOf(ticket, key),
    ticket: ticket.bytes,
    env: {},
    onOpened: () => {},
    onGossip: () => {},
    onClosed: closed.resolve,
  });
  // From a timer, as the mesh does it: within a promise's callback the error would come later.
  setTimeout(() => neverRejects(delegate.open()));
  expect(await closed.promise).toContain('connect');
});

it('the gateway’s own words are final', async () => {
  const { url } = await gateway(() => page(401, envelope('invalid_api_key')));
  const { heard } = tunnelTo(url);
  await expect.poll(() => heard.refused, { timeout: 30_000 }).toEqual([{ status: 401, message: 'not you' }]);
  const other = await gateway(() => page(410, envelope('session_over')));
  const { heard: also } = tunnelTo(other.url);
  await expect.poll(() => also.over, { timeout: 30_000 }).toEqual(['not you']);
});

it('a tunnel that is closed while its proxy connects makes no socket afterwards', async () => {
  const { url, seen } = await gateway(() => page(503, ''));
  const proxy = await slowProxy();
  const { tunnel } = tunnelTo(url, proxy.url);
  await proxy.asked;
  await tunnel.close();
  proxy.pass();
  await proxy.passed;
  await delay(500);
  expect(seen.upgrades).toBe(0);
});

it('a delegate that is closed while its proxy connects does not end the agent', async () => {
  const { url } = await gateway(() => page(503, ''));
  const proxy = await slowProxy();
  const key = createSessionKey();
  const ticket = labTicket(key.publicKey);
  const closed: string[] = [];
  const delegate = new GatewayGossipSocket({
    gateway: url,
    identity: sessionIdentityOf(ticket, key),
    ticket: ticket.bytes,
    env: {},
    proxy: () => proxy.url,
    onOpened: () => {},
    onGossip: () => {},
    onClosed: (reason) => closed.push(reason),
  });
  const opened = delegate.open();
  await proxy.asked;
  delegate.close('leaving');
  proxy.pass();
  // Without a listener the socket's error would be an uncaught exception, and vitest would fail the run.
  await opened;
  await proxy.passed;
  expect(closed).toEqual(['leaving']);
});
