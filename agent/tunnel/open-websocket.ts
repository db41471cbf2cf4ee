import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { WebSocket } from 'ws';
import { MESSAGE_MAX_BYTES } from '../../shared/wire/protocol-constants.ts';
import { proxyAuthorization, proxyFor } from '../host/proxy-variables.ts';
import { gatewayTimeout, waitClock } from '../wait-clock.ts';

/** The error message of `ws` if no answer arrives within `handshakeTimeout`. */
const UPGRADE_LATE = 'Opening handshake has timed out';

export interface WebSocketOptions {
  gateway: URL;
  /** Path below the gateway's path, such as `/agent/connect`. */
  path: string;
  headers: Record<string, string>;
  env: NodeJS.ProcessEnv;
  /** An HTTP proxy for this URL only. It takes precedence over the environment's proxies. */
  proxy?: ((url: URL) => URL | undefined) | undefined;
}

/**
 * Opens a WebSocket to a gateway, through the given proxy or the environment's. Returns the result of `use`. `use` must
 * add its listeners before it returns: if there is no network, the socket closes in the same tick, before the callbacks
 * of a promise run.
 */
export async function openWebSocket<T>(
  options: WebSocketOptions,
  use: (socket: WebSocket) => T | Promise<T>,
): Promise<T> {
  const url = webSocketUrl(options.gateway, options.path);
  const proxy = options.proxy?.(url) ?? proxyFor(options.gateway, options.env);
  const tunnel = proxy === undefined ? undefined : await throughProxy(proxy, url);
  const secure = url.protocol === 'wss:';
  const [askedAt, waitMs] = [waitClock.now(), gatewayTimeout.ms];
  const socket = new WebSocket(url, {
    headers: options.headers,
    perMessageDeflate: false,
    handshakeTimeout: waitMs,
    maxPayload: MESSAGE_MAX_BYTES,
    ...(tunnel === undefined
      ? {}
      : { createConnection: () => (secure ? tlsConnect({ socket: tunnel, servername: url.hostname }) : tunnel) }),
  });
  const learn = () => gatewayTimeout.answered(waitClock.now() - askedAt);
  socket.once('upgrade', learn);
  socket.once('error', ({ message }) => {
    if (message === UPGRADE_LATE) gatewayTimeout.expired();
  });
  return use(socket);
}

function webSocketUrl(gateway: URL, path: string): URL {
  const url = new URL(gateway);
  url.protocol = gateway.protocol === 'https:' || gateway.protocol === 'wss:' ? 'wss:' : 'ws:';
  url.pathname = `${gateway.pathname.replace(/\/+$/, '')}${path}`;
  return url;
}

/** The URL's host and port as `host:port`, with the default port if there is none. */
export function authority(url: URL): string {
  const secure = url.protocol === 'wss:' || url.protocol === 'https:';
  return `${url.hostname}:${url.port || (secure ? '443' : '80')}`;
}

/** Opens a connection to the host of `target` through a proxy, by CONNECT (RFC 9110 §9.3.6). */
export function throughProxy(proxy: URL, target: URL): Promise<Socket> {
  const request = proxy.protocol === 'https:' ? httpsRequest : httpRequest;
  const pass = proxyAuthorization(proxy);
  return new Promise((resolve, reject) => {
    const connect = request({
      host: proxy.hostname.replace(/^\[|\]$/g, ''),
      port: proxy.port || (proxy.protocol === 'https:' ? 443 : 80),
      method: 'CONNECT',
      path: authority(target),
      headers: { host: authority(target), ...(pass === undefined ? {} : { 'proxy-authorization': pass }) },
      timeout: gatewayTimeout.ms,
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
