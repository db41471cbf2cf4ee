import { Hono } from 'hono';
import { fromBase64url } from '../../../shared/lattice/base64url.ts';
import { SIGNATURE_BYTES } from '../../../shared/lattice/crypto-interface.ts';
import { logTailMessage } from '../../../shared/lattice/session-id.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { LOCAL_ISSUER, providerId } from '../../../shared/routing/trusted-providers.ts';
import { LOG_TAIL_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import type { Env } from '../../env.ts';
import { readBodyBytes } from '../../http/read-body.ts';
import { workerdCrypto } from '../../issuer/ed25519.ts';
import { REGISTRY_OBJECT_NAME } from '../../platform/registry-object-name.ts';
import { PROTOCOL_HEADER, verifyAgentTicket, versionMismatch } from '../verify-agent-ticket.ts';
import { issuersView } from './issuers-view.ts';

const SIGNATURE_HEADER = 'x-otela-signature';

/**
 * `POST /agent/logs`: the last output of a failed engine, unchanged, signed by its session. Tickets are public: without
 * the signature anyone with a ticket could overwrite another session's log.
 */
export const agentLogRoutes = new Hono<{ Bindings: Env }>();

agentLogRoutes.post('/logs', async (c) => {
  const request = c.req.raw;
  const mismatch = versionMismatch(request.headers.get(PROTOCOL_HEADER));
  if (mismatch !== undefined) return mismatch;
  const viewFor = (issuer: string) => issuersView(c.env, c.executionCtx, issuer);
  const { ticket, issuer } = await verifyAgentTicket(request, viewFor, Date.now());
  const signature = fromBase64url(request.headers.get(SIGNATURE_HEADER) ?? '', SIGNATURE_BYTES);
  const tail = await readBodyBytes(c, LOG_TAIL_MAX_BYTES);
  const message = logTailMessage(ticket.session, workerdCrypto.sha256(tail));
  if (signature === undefined || !workerdCrypto.verify(ticket.sessionKey, message, signature))
    throw new ApiError('permission_denied', `${SIGNATURE_HEADER} was not made by this session for this body.`);
  const provider = providerId({ provider: ticket.provider, issuer: issuer.name }, LOCAL_ISSUER);
  const kept = await asking(() =>
    c.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).keepLog(ticket.session, provider, new TextDecoder().decode(tail)),
  );
  if (!kept)
    throw new ApiError('rate_limit_exceeded', 'This session sent its log a moment ago; wait before sending it again.');
  return c.body(null, 204);
});

async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
}
