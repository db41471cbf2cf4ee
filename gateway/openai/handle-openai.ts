/** `POST /v1/*` for models: runs the pipeline of `shared/proxy` on this gateway. */
import { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import { discardBody } from '../../shared/proxy/discard-body.ts';
import { handleRequest } from '../../shared/proxy/handle-request.ts';
import type { ProxyResponse } from '../../shared/proxy/proxy-http-types.ts';
import type { Env } from '../env.ts';
import { crossOriginHeaders } from '../http/cross-origin.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Background } from '../platform/object-context.ts';
import { GatewayHost, hostClock } from './gateway-host.ts';
import { GatewayRequest } from './gateway-request.ts';

/** Handles a request to a model. Never rejects, because errors become responses. `path`: without the query. */
export async function handleOpenAI(
  http: HttpRequest,
  path: string,
  env: Env,
  background: Background,
): Promise<ProxyResponse> {
  const client = http.client ?? new ClientDisconnect(http.signal);
  let { whole } = http;
  if (whole === undefined && http.body === null) whole = new Uint8Array(await http.arrayBuffer());
  const request = new GatewayRequest(http, path, client, whole);
  const response = await handleRequest(request, new GatewayHost(http, client, env, background));
  Object.assign(response.headers, crossOriginHeaders(env, http, response.status));
  return response;
}

/** Reads the rest of a request that another route refused; see `discardBody`. */
export function discardRequest(http: HttpRequest): Promise<void> {
  const request = new GatewayRequest(http, '', new ClientDisconnect(), undefined);
  return discardBody(request.body, { clock: hostClock });
}
