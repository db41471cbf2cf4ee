import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { WebSocket } from 'ws';
import { MESSAGE_MAX_BYTES, PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { proxyFor } from '../host/proxy.ts';

const HANDSHAKE_TIMEOUT_MS = 10_000;

export interface DialOptions {
  gateway: URL;
  session: string;
  token: string;
  cluster?: string;
  env: NodeJS.ProcessEnv;
}

/** Opens the WebSocket to a gateway, through the proxy that the environment names where it names one. */
export async function dial(options: DialOptions): Promise<WebSocket> {
  const url = connectUrl(options.gateway);
  const proxy = proxyFor(options.gateway, options.env);
  const tunnel = proxy === undefined ? undefined : await throughProxy(proxy, url);
  const secure = url.protocol === 'wss:';
  return new WebSocket(url, {
    headers: {
      authorization: `Bearer ${options.token}`,
      'x-otela-protocol': String(PROTOCOL_VERSION),
      'x-otela-session': options.session,
      ...(options.cluster === undefined ? {} : { 'x-otela-cluster': options.cluster }),
    },
    perMessageDeflate: false,
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    maxPayload: MESSAGE_MAX_BYTES,
    ...(tunnel === undefined
      ? {}
      : { createConnection: () => (secure ? tlsConnect({ socket: tunnel, servername: url.hostname }) : tunnel) }),
  });
}

function connectUrl(gateway: URL): URL {
  const url = new URL(gateway);
  url.protocol = gateway.protocol === 'https:' || gateway.protocol === 'wss:' ? 'wss:' : 'ws:';
  url.pathname = `${gateway.pathname.replace(/\/+$/, '')}/agent/connect`;
  return url;
}

/** CONNECT (RFC 9110 §9.3.6). */
function throughProxy(proxy: URL, target: URL): Promise<Socket> {
  const port = target.port || (target.protocol === 'wss:' ? '443' : '80');
  const request = proxy.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const connect = request({
      host: proxy.hostname,
      port: proxy.port || (proxy.protocol === 'https:' ? 443 : 80),
      method: 'CONNECT',
      path: `${target.hostname}:${port}`,
      headers: { host: `${target.hostname}:${port}`, ...proxyAuthorization(proxy) },
      timeout: HANDSHAKE_TIMEOUT_MS,
    });
    connect.on('connect', (response, socket) => {
      if (response.statusCode === 200) return resolve(socket);
      socket.destroy();
      reject(new Error(`the proxy ${proxy.host} answered ${response.statusCode} to CONNECT`));
    });
    connect.on('timeout', () => connect.destroy(new Error(`the proxy ${proxy.host} does not answer`)));
    connect.on('error', reject);
    connect.end();
  });
}

function proxyAuthorization(proxy: URL): Record<string, string> {
  if (proxy.username === '') return {};
  const credentials = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}` };
}
