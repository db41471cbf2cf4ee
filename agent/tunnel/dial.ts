import type { WebSocket } from 'ws';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { openWebSocket } from './websocket.ts';

export interface DialOptions {
  gateway: URL;
  session: string;
  token: string;
  cluster?: string;
  env: NodeJS.ProcessEnv;
}

/** Opens the tunnel's WebSocket to a gateway. */
export function dial(options: DialOptions): Promise<WebSocket> {
  return openWebSocket({
    gateway: options.gateway,
    path: '/agent/connect',
    headers: {
      authorization: `Bearer ${options.token}`,
      'x-otela-protocol': String(PROTOCOL_VERSION),
      'x-otela-session': options.session,
      ...(options.cluster === undefined ? {} : { 'x-otela-cluster': options.cluster }),
    },
    env: options.env,
  });
}
