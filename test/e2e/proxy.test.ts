/** An agent in a cluster that allows outgoing connections only through an HTTP proxy. */
import { createServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';

afterEach(endAll);

interface Proxy {
  url: string;
  /** Authorities that CONNECT requests named. */
  connected: string[];
}

/** A CONNECT proxy; only it knows the address of `gateway.test`. */
async function startProxy(gatewayPort: number, credentials?: string): Promise<Proxy> {
  const connected: string[] = [];
  const server: Server = createServer((_, response) => response.writeHead(405).end());
  server.on('connect', (request, client) => {
    connected.push(request.url ?? '');
    const wanted = credentials === undefined ? undefined : `Basic ${Buffer.from(credentials).toString('base64')}`;
    if (wanted !== undefined && request.headers['proxy-authorization'] !== wanted) {
      client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
      return;
    }
    const upstream = connect(gatewayPort, '127.0.0.1', () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      client.pipe(upstream).pipe(client);
    });
    for (const socket of [client, upstream]) socket.on('error', () => client.destroy());
    client.on('close', () => upstream.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://${credentials === undefined ? '' : `${credentials}@`}127.0.0.1:${port}`, connected };
}

async function serveThrough(name: string, credentials?: string, more: Record<string, string> = {}) {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const proxy = await startProxy(gateway.port, credentials);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const gateways = [`http://gateway.test:${gateway.port}`];
  const agent = await startAgent({ gateways, token, engineUrl: engine.url, env: { [name]: proxy.url, ...more } });
  const ask = () =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 3 })),
    });
  return { gateway, proxy, agent, engine, ask };
}

it.each(['http_proxy', 'HTTP_PROXY', 'all_proxy'])(
  '%s is honoured for the gateway and not for the engine on this machine',
  async (name) => {
    const { gateway, proxy, ask } = await serveThrough(name);
    await gateway.serving(1);
    expect((await ask()).status).toBe(200);
    expect(new Set(proxy.connected)).toEqual(new Set([`gateway.test:${gateway.port}`]));
  },
);

it('a proxy’s user and password are used and never printed', async () => {
  const { gateway, agent } = await serveThrough('http_proxy', 'user:s3cret-word');
  await gateway.serving(1);
  expect(agent.output).not.toContain('s3cret-word');
});

it('NO_PROXY leaves the proxy out', async () => {
  const { proxy, agent } = await serveThrough('http_proxy', undefined, { NO_PROXY: '.test' });
  // Without the proxy the name does not resolve: the agent logs it and tries again.
  await agent.line(/gateway\.test.*(ENOTFOUND|EAI_AGAIN|getaddrinfo)/, 15_000);
  expect(proxy.connected).toEqual([]);
});
