import { Hono } from 'hono';
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KEY_BYTES } from '../../shared/lattice/crypto-interface.ts';
import { idSchema } from '../../shared/lattice/node-record.ts';
import { ApiError, retryAfter } from '../../shared/openai/api-errors.ts';
import { attestationSchema, releaseSchema } from '../../shared/release/release-manifest.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { presentedKey } from '../accounts/authenticate.ts';
import { requireWritable } from '../accounts/database.ts';
import type { GatewaySettings } from '../accounts/gateway-settings.ts';
import { countJoin, readJoinGrant, revokedToken, unknownToken } from '../accounts/join-token-grant.ts';
import { isSecret, TOKEN_PREFIX } from '../accounts/secrets.ts';
import type { Env } from '../env.ts';
import { readParsedBody } from '../http/parse-body.ts';
import type { Background } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import type { QuotaRefusal } from './admission-quota.ts';
import { requireRelease, requireVersion } from './attest-release.ts';
import { otherGateways } from './gateways-for-agents.ts';
import { isolateSnapshot } from './isolate-snapshot.ts';
import type { AdmittedNode } from './session-registry.ts';
import { versionMismatch } from './verify-agent-ticket.ts';

/** The cluster of a session if neither its agent nor its join token names a cluster. */
const DEFAULT_CLUSTER = 'default';

const admitSchema = z.object({
  protocol: z.number().int(),
  /** Public key that the agent created for the session: Ed25519, raw, base64url. */
  public_key: z.string().max(64),
  cluster: idSchema.optional(),
  job_ends_at: z.iso.datetime({ offset: true }).optional(),
  /** The agent's version, as `otela-agent version` prints it. Older agents do not send it. */
  version: z.string().max(64).optional(),
  /** The release from which the agent was installed, if any. */
  release: releaseSchema.optional(),
  /** The agent's answer to a response 428. */
  attestation: attestationSchema.optional(),
});

/**
 * `POST /agent/admit` exchanges a join token and the public key of a new session for a ticket. Every gateway that lists
 * our issuer accepts the ticket. The token is looked up in D1 and not passed on.
 */
export const admitRoutes = new Hono<{ Bindings: Env }>();

/**
 * workerd sends no Date header without Cloudflare's network, and `otela-agent doctor` compares clocks with it (RFC 9110
 * §6.6.1).
 */
admitRoutes.use('/admit', async (c, next) => {
  await next();
  c.header('date', new Date().toUTCString());
});

admitRoutes.post('/admit', async (c) => {
  const body = await readParsedBody(c, admitSchema);
  const mismatch = versionMismatch(String(body.protocol));
  if (mismatch !== undefined) return mismatch;
  const sessionKey = fromBase64url(body.public_key, KEY_BYTES);
  if (sessionKey?.length !== KEY_BYTES)
    throw new ApiError('invalid_request', 'public_key must be 32 bytes in base64url.', { param: 'public_key' });
  const token = presentedKey(c.req.raw);
  if (token === undefined)
    throw new ApiError('invalid_api_key', 'No join token was given. Start the agent with --token-file or OTELA_TOKEN.');
  if (!isSecret(token, TOKEN_PREFIX)) throw unknownToken();
  const { release, attestation } = body;
  const now = Date.now();
  const { membership, minimumAgentVersion: minimum } = await knownSettings(c.env, c.executionCtx, now);
  requireVersion(body.version, minimum);
  const claim = { release, attestation };
  const challenge = await requireRelease(c.env, sessionKey, body.public_key, claim, { minimum, now });
  if (challenge !== undefined) return challenged(challenge);
  requireWritable();
  const grant = await readJoinGrant(c.env, token, body.cluster, now);
  const { provider, tokenId } = grant;
  const cluster = grant.cluster ?? body.cluster ?? DEFAULT_CLUSTER;
  const jobEndsAt = body.job_ends_at === undefined ? undefined : Math.floor(Date.parse(body.job_ends_at) / 1000);
  const registry = c.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  const admitted = await asking(() => registry.admit({ ...grant, sessionKey, cluster, jobEndsAt }));
  if (!(await countJoin(c.env, tokenId))) {
    // The token was revoked during this request. The revocation may have missed this session, so the sessions of the
    // token are ended again.
    await registry.revokeToken(tokenId, false);
    throw revokedToken();
  }
  return c.json(
    {
      object: 'ticket',
      protocol: PROTOCOL_VERSION,
      session: admitted.session,
      ticket: toBase64url(admitted.ticket),
      provider,
      cluster,
      expires_at: new Date(admitted.expires * 1000).toISOString(),
      issuer: admitted.issuer,
      issuers: admitted.issuers.map(({ name, id, root }) => ({ name, id, root })),
      gateway: admitted.gateway,
      gateways: otherGateways(c.env, admitted.issuers, admitted.session),
      membership,
    },
    200,
    { 'cache-control': 'no-store' },
  );
});

/** @throws ApiError 503 until D1 has answered once, because an agent that is too old must not be admitted meanwhile */
async function knownSettings(env: Env, ctx: Background, now: number): Promise<GatewaySettings> {
  const { settings } = await isolateSnapshot.get(env, ctx, now, (view) => view.settings.known);
  if (settings.known) return settings;
  throw new ApiError('server_is_overloaded', 'The registry does not answer yet. Try again shortly.');
}

/** Responds with 428 (RFC 6585 §3). The agent repeats its request with the attestation and is then admitted. */
function challenged(challenge: string): Response {
  const message = 'This gateway admits only agents of signed releases: answer the challenge.';
  const error = { message, type: 'invalid_request_error', param: null, code: 'attestation_required' };
  return Response.json({ error, challenge }, { status: 428, headers: { 'cache-control': 'no-store' } });
}

async function asking(ask: () => Promise<AdmittedNode | QuotaRefusal | null>): Promise<AdmittedNode> {
  let admitted: AdmittedNode | QuotaRefusal | null;
  try {
    admitted = await ask();
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
  if (admitted !== null && 'refused' in admitted) throw noPlace(admitted);
  if (admitted !== null) return admitted;
  const message = "This gateway's certificate is not valid now, so it cannot admit agents: its operator must renew it.";
  throw new ApiError('server_is_overloaded', message);
}

/**
 * Delay after which an agent that was refused because of a limit should retry. By then nodes that were killed may be
 * suspected, and suspected nodes do not count.
 */
const NO_PLACE_RETRY_MS = 30_000;

function noPlace(refusal: QuotaRefusal): ApiError {
  switch (refusal.refused) {
    case 'rate':
      return new ApiError('rate_limit_exceeded', 'Too many nodes of this provider join at the same time.', {
        headers: retryAfter(refusal.waitMs),
      });
    case 'token':
      return later(`This join token allows ${refusal.max} nodes at a time, and ${refusal.max} nodes already use it.`);
    case 'provider':
      return later(`This provider may have ${refusal.max} nodes at a time, and already has ${refusal.max}.`);
    case 'tickets':
      return later(
        `This provider received ${refusal.max} tickets in the last days, the maximum. It gets more when the oldest ones expire.`,
      );
  }
}

function later(message: string): ApiError {
  return new ApiError('rate_limit_exceeded', message, { headers: retryAfter(NO_PLACE_RETRY_MS) });
}
