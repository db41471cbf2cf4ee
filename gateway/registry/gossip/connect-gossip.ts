import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import type { Background } from '../../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../../platform/registry-object-name.ts';
import { AUDIENCE_HEADER } from '../proven-sockets.ts';
import { PROTOCOL_HEADER, TICKET_HEADER, verifyAgentTicket, versionMismatch } from '../verify-agent-ticket.ts';
import { issuersView } from '../views/issuers-view.ts';

/**
 * `GET /agent/gossip`: passes an agent's socket to the registry object, which then treats the ticket's session as a
 * peer. The agent proves to the object that it owns the session.
 * @throws ApiError 400, 403, 410, 503; another protocol version gets 426
 */
export async function connectGossip(request: Request, env: Env, ctx: Background): Promise<Response> {
  const mismatch = checkUpgrade(request);
  if (mismatch !== undefined) return mismatch;
  await verifyAgentTicket(request, (id) => issuersView(env, ctx, id), Date.now());
  const headers = {
    upgrade: 'websocket',
    [TICKET_HEADER]: request.headers.get(TICKET_HEADER) ?? '',
    [AUDIENCE_HEADER]: `gossip:${audienceOf(request)}`,
  };
  return env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).fetch('https://registry/gossip', { headers });
}

/**
 * Undefined if a WebSocket of our protocol version is requested; otherwise the response 426.
 * @throws ApiError 400 if no WebSocket is requested
 */
export function checkUpgrade(request: Request): Response | undefined {
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket')
    throw new ApiError('invalid_request', 'Agents connect here with a WebSocket.');
  return versionMismatch(request.headers.get(PROTOCOL_HEADER));
}

/** Returns the host that the agent dialed. The agent's signature must be for this host. */
export function audienceOf(request: Request): string {
  return request.headers.get('host') ?? new URL(request.url).host;
}
