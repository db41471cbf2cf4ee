import { Hono } from 'hono';
import { LatticeError } from '../../shared/lattice/lattice-error.ts';
import {
  decodeRecord,
  REGISTRY_RECORD_MAX_BYTES,
  type SignedRecord,
  verifyRecord,
} from '../../shared/lattice/signed-record.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { readBodyBytes } from '../http/read-body.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { PROTOCOL_HEADER, verifyAgentTicket, versionMismatch } from './verify-agent-ticket.ts';
import { issuersView } from './views/issuers-view.ts';

/**
 * `POST /agent/left`: a record with the state LEFT, signed by its session. The record is sent for an agent that was
 * killed and could not send the record on its tunnel. The signature is checked here, so that unsigned records do not
 * reach the registry object.
 */
export const agentLeftRoutes = new Hono<{ Bindings: Env }>();

agentLeftRoutes.post('/left', async (c) => {
  const request = c.req.raw;
  const mismatch = versionMismatch(request.headers.get(PROTOCOL_HEADER));
  if (mismatch !== undefined) return mismatch;
  const { ticket } = await verifyAgentTicket(request, (id) => issuersView(c.env, c.executionCtx, id), Date.now());
  const length = Number(request.headers.get('content-length') ?? Number.NaN);
  if (!(length <= REGISTRY_RECORD_MAX_BYTES))
    throw new ApiError('request_too_large', 'The body is too long for a registry record.');
  const record = checked(await readBodyBytes(c, REGISTRY_RECORD_MAX_BYTES), ticket);
  try {
    await c.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).left(ticket.bytes, record.bytes);
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
  return c.body(null, 204);
});

/** @throws ApiError 400, 403 */
function checked(bytes: Uint8Array, ticket: Ticket): SignedRecord {
  try {
    const record = decodeRecord(bytes, workerdCrypto);
    if (record.state !== 'LEFT')
      throw new ApiError('invalid_request', 'The record does not say that its session has left.');
    if (record.session === ticket.session) return verifyRecord(record, ticket.sessionKey, workerdCrypto);
  } catch (cause) {
    if (!(cause instanceof LatticeError)) throw cause;
    if (cause.code !== 'bad_signature')
      throw new ApiError('invalid_request', `The body is not a registry record: ${cause.message}`, { cause });
  }
  throw new ApiError('permission_denied', 'The record is not signed by the session of this ticket.');
}
