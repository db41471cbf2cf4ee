import { hex } from '../../shared/lattice/byte-codec.ts';
import { SESSION_PATTERN } from '../../shared/lattice/node-record.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { CIRCUIT_NAME } from '../../shared/wire/gateway-circuit.ts';
import type { Env } from '../env.ts';
import type { Background } from '../platform/object-context.ts';
import { audienceOf, checkUpgrade } from '../registry/gossip/connect-gossip.ts';
import { AUDIENCE_HEADER } from '../registry/proven-sockets.ts';
import { TICKET_HEADER, verifyAgentTicket } from '../registry/verify-agent-ticket.ts';
import { issuersView } from '../registry/views/issuers-view.ts';
import { CALLEE_HEADER, CIRCUIT_HEADER, CIRCUIT_OBJECT_NAME } from './circuit-object.ts';

/**
 * Connects the two ends of a circuit to the circuit object. The caller, an agent that cannot reach SESSION directly,
 * sends `GET /agent/circuit/SESSION`. The session then receives the circuit's NAME on its tunnel and sends `GET
 * /agent/circuit/NAME`. At the object, each end proves that it owns its ticket's session.
 * @throws ApiError 400, 403, 404 if this gateway has no circuits, 410, 503; another protocol version gets 426
 */
export async function connectCircuit(request: Request, to: string, env: Env, ctx: Background): Promise<Response> {
  const calls = SESSION_PATTERN.test(to);
  if (env.CIRCUIT === undefined || env.MESH_RELAY === 'off' || !(calls || CIRCUIT_NAME.test(to)))
    throw new ApiError('not_found', 'There is no such circuit at this gateway.');
  const mismatch = checkUpgrade(request);
  if (mismatch !== undefined) return mismatch;
  await verifyAgentTicket(request, (id) => issuersView(env, ctx, id), Date.now());
  const name = calls ? newName() : to;
  const headers = {
    upgrade: 'websocket',
    [TICKET_HEADER]: request.headers.get(TICKET_HEADER) ?? '',
    [CIRCUIT_HEADER]: name,
    [AUDIENCE_HEADER]: `circuit:${audienceOf(request)}`,
    ...(calls ? { [CALLEE_HEADER]: to } : {}),
  };
  const answer = await env.CIRCUIT.getByName(CIRCUIT_OBJECT_NAME).fetch('https://circuit/join', { headers });
  if (answer.status >= 400) throw new ApiError('not_found', 'There is no such circuit at this gateway.');
  return answer;
}

/** Creates a circuit's name of 128 random bits. */
function newName(): string {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}
