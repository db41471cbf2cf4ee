/** Reads and verifies the tickets that agents send when they connect. */
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import type { CertificateCache } from '../../shared/lattice/gateway-certificate.ts';
import { LatticeError } from '../../shared/lattice/lattice-error.ts';
import { openTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import type { RegistrySnapshot } from './isolate-snapshot.ts';
import type { ListedIssuer } from './listed-issuers.ts';

export const TICKET_HEADER = 'x-otela-ticket';
export const PROTOCOL_HEADER = 'x-otela-protocol';

/** Verified certificates. The lattice clears this cache when it is full. */
const certificates: CertificateCache = new Map();

interface ShownTicket {
  ticket: Ticket;
  issuer: ListedIssuer;
  view: RegistrySnapshot;
}

/**
 * Returns the ticket of a request: it is signed by a listed issuer and not expired, and its session is not LEFT
 * according to the view. Tickets are public, so the sender still has to prove that it has the session's key. `viewFor`
 * returns a view that should contain the issuer, so that an issuer that was just listed is not refused.
 * @throws ApiError 400 if the ticket is malformed or forged, 403 if its issuer is not listed, 410 if the ticket has
 * expired or the session has left; errors of `viewFor`
 */
export async function verifyAgentTicket(
  request: Request,
  viewFor: (issuer: string) => Promise<RegistrySnapshot>,
  now: number,
): Promise<ShownTicket> {
  const bytes = fromBase64url(request.headers.get(TICKET_HEADER) ?? '', TICKET_MAX_BYTES);
  if (bytes === undefined || bytes.length === 0)
    throw new ApiError('invalid_request', `${TICKET_HEADER} contains no ticket. Get one with POST /agent/admit.`);
  const ticket = opened(bytes);
  const view = await viewFor(ticket.issuer);
  const issuer = view.issuers.get(ticket.issuer);
  if (issuer === undefined)
    throw new ApiError('permission_denied', 'The issuer of this ticket is not a peer institution of this gateway.');
  if (ticket.expires * 1000 <= now) throw over('its ticket has expired');
  if (view.nodes.get(ticket.session)?.state === 'LEFT') throw over('it has left');
  return { ticket, issuer, view };
}

function opened(bytes: Uint8Array): Ticket {
  try {
    return openTicket(bytes, workerdCrypto, certificates);
  } catch (error) {
    if (!(error instanceof LatticeError)) throw error;
    throw new ApiError('invalid_request', `This ticket is not valid: ${error.message}.`, { cause: error });
  }
}

/** Returns the error 410 (RFC 9110 §15.5.11), after which the agent creates a new session. */
function over(why: string): ApiError {
  return new ApiError('session_over', `This session has ended: ${why}. Get a new one with POST /agent/admit.`);
}

/**
 * Returns the response 426 (RFC 9110 §15.5.22) if the agent's protocol version differs or is missing. The agent prints
 * the response's message and ends. Undefined: the versions match.
 */
export function versionMismatch(protocol: string | null): Response | undefined {
  if (protocol === String(PROTOCOL_VERSION)) return undefined;
  const theirs = protocol === null ? 'none' : protocol.slice(0, 16);
  const newer = Number(protocol) > PROTOCOL_VERSION;
  const message = `This gateway uses version ${PROTOCOL_VERSION} of the tunnel protocol, but the agent uses ${theirs}: upgrade the ${newer ? 'gateway' : 'agent'}.`;
  const error = { message, type: 'invalid_request_error', param: PROTOCOL_HEADER, code: 'protocol_mismatch' };
  return Response.json({ error }, { status: 426, headers: { upgrade: 'websocket' } });
}
