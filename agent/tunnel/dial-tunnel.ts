import type { WebSocket } from 'ws';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { FRAMES_HEADER, FRAMES_READ, PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { openWebSocket, type WebSocketOptions } from './open-websocket.ts';

interface TunnelDialOptions {
  gateway: URL;
  ticket: Uint8Array;
  env: NodeJS.ProcessEnv;
  proxy: WebSocketOptions['proxy'];
}

/** Opens the tunnel's WebSocket to a gateway. See `openWebSocket`. */
export function dialTunnel(
  { gateway, ticket, env, proxy }: TunnelDialOptions,
  use: (socket: WebSocket) => void,
): Promise<void> {
  const options = {
    gateway,
    path: '/agent/connect',
    headers: {
      'x-otela-protocol': String(PROTOCOL_VERSION),
      'x-otela-ticket': toBase64url(ticket),
      [FRAMES_HEADER]: String(FRAMES_READ),
    },
    env,
    proxy,
  };
  return openWebSocket(options, use);
}
