/** `GET /v1/realtime`: connects a client's WebSocket to the WebSocket of a node's engine. */

import { ApiError } from '../../../shared/openai/api-errors.ts';
import { REALTIME } from '../../../shared/openai/endpoints.ts';
import { MESSAGE_RECORDS_TYPE } from '../../../shared/openai/realtime/message-records.ts';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import { handleRequest } from '../../../shared/proxy/handle-request.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { requireEndpoint, requireModelAccess } from '../../accounts/account.ts';
import type { Env } from '../../env.ts';
import { responseOf } from '../../http/http-request.ts';
import type { Background } from '../../platform/object-context.ts';
import { GatewayHost } from '../gateway-host.ts';
import { handleOpenAI } from '../handle-openai.ts';
import { RealtimeRequest } from './realtime-request.ts';
import { RealtimeSession } from './realtime-session.ts';

/** Headers of the engine's answer that do not belong to the response that accepts a WebSocket. */
const OF_A_BODY = ['content-type', 'content-encoding', 'content-disposition'];

/** Accepts the WebSocket, or refuses it with an HTTP error. */
export async function connectRealtime(raw: Request, env: Env, background: Background): Promise<Response> {
  const socket =
    raw.headers.get('upgrade')?.toLowerCase() === 'websocket' ? env.CLIENT_WEBSOCKETS?.create() : undefined;
  // Without a WebSocket, the pipeline refuses the request.
  if (socket === undefined) return responseOf(await handleOpenAI(raw, REALTIME.path, env, background));
  if (raw.headers.get('x-otela-seal') !== null)
    throw new ApiError('invalid_request', 'A realtime session cannot be sealed.', { param: 'x-otela-seal' });
  const client = new ClientDisconnect(raw.signal);
  const request = new RealtimeRequest(raw, socket, client);
  const host = new GatewayHost(request.http, client, env, background);
  const response = await handleRequest(request, host);
  const { status, headers, body } = response;
  if (status !== 200 || headers['content-type'] !== MESSAGE_RECORDS_TYPE || body === null || typeof body === 'string') {
    request.over();
    return responseOf(response);
  }
  request.served = decodeURIComponent(headers['x-otela-served-model'] ?? request.model);
  const recheck = async () => {
    const { account } = await host.identify();
    requireEndpoint(account, REALTIME);
    requireModelAccess(account, request.model, false);
  };
  const session = new RealtimeSession({ socket, request, recheck, stopping: env.STOPPING });
  const running = session.run(body);
  background.waitUntil(running);
  neverRejects(running);
  return socket.accept(Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_A_BODY.includes(name))));
}
