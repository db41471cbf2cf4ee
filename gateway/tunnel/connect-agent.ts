import { LOCAL_ISSUER, providerId } from '../../shared/routing/trusted-providers.ts';
import { FRAMES_HEADER } from '../../shared/wire/protocol-constants.ts';
import type { Env } from '../env.ts';
import type { Background } from '../platform/object-context.ts';
import { audienceOf, checkUpgrade } from '../registry/gossip/connect-gossip.ts';
import { AUDIENCE_HEADER, GATEWAY_HEADER } from '../registry/proven-sockets.ts';
import { TICKET_HEADER, verifyAgentTicket } from '../registry/verify-agent-ticket.ts';
import { issuersView } from '../registry/views/issuers-view.ts';

/**
 * `GET /agent/connect`: passes an agent's socket to the tunnel object of the session in its ticket. Tickets are public,
 * so the agent must then prove to the object that it owns the session.
 * @throws ApiError 400, 403, 410, 503; another protocol version gets 426
 */
export async function connectAgent(request: Request, env: Env, ctx: Background): Promise<Response> {
  const mismatch = checkUpgrade(request);
  if (mismatch !== undefined) return mismatch;
  const { ticket, issuer, view } = await verifyAgentTicket(request, (id) => issuersView(env, ctx, id), Date.now());
  const headers = {
    upgrade: 'websocket',
    [TICKET_HEADER]: request.headers.get(TICKET_HEADER) ?? '',
    [AUDIENCE_HEADER]: audienceOf(request),
    [GATEWAY_HEADER]: view.gateway,
    [FRAMES_HEADER]: request.headers.get(FRAMES_HEADER) ?? '',
    'x-otela-provider': providerId({ provider: ticket.provider, issuer: issuer.name }, LOCAL_ISSUER),
  };
  return env.TUNNEL.getByName(ticket.session).fetch('https://tunnel/connect', { headers });
}
