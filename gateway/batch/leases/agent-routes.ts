/**
 * `/agent/batch/…`: agents lease lines, read them and commit results. These requests use plain HTTP and not the tunnel:
 * HTTP's flow control slows large bodies down, results reach their batch directly, and frames of requests never wait
 * behind them.
 */

import { eq } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { CHUNK_LINES } from '../../../shared/batch/batch-input-check.ts';
import {
  BATCH_SIGNATURE_HEADER,
  BATCH_SKEW_MS,
  type BatchStamp,
  batchRequestMessage,
  CLOCK_HEADER,
  readBatchSignature,
} from '../../../shared/batch/batch-signature.ts';
import { WHY_MAX } from '../../../shared/batch/function-context.ts';
import {
  BATCH_OUTPUTS_MAX,
  LINE_FILES_MAX,
  OUTPUT_HEADER,
  outputFileSchema,
} from '../../../shared/batch/function-files.ts';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import type { LeaseRef } from '../../../shared/batch/lease-ledger.ts';
import { LOG_MAX } from '../../../shared/batch/line-results.ts';
import { fromBase64url } from '../../../shared/lattice/base64url.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { LOCAL_ISSUER, providerId } from '../../../shared/routing/trusted-providers.ts';
import { parseJson } from '../../../shared/text/parse-json.ts';
import { PROTOCOL_VERSION } from '../../../shared/wire/protocol-constants.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import type { Env } from '../../env.ts';
import { batches } from '../../files/file-tables.ts';
import { STORE_MESSAGES, storeOf, toReadableStream, withStoreErrors } from '../../files/store-access.ts';
import { readBodyBytes, readBodyPieces } from '../../http/read-body.ts';
import { workerdCrypto } from '../../issuer/ed25519.ts';
import { audienceOf } from '../../registry/gossip/connect-gossip.ts';
import type { RegistrySnapshot } from '../../registry/isolate-snapshot.ts';
import { PROTOCOL_HEADER, verifyAgentTicket, versionMismatch } from '../../registry/verify-agent-ticket.ts';
import { issuersView } from '../../registry/views/issuers-view.ts';
import { readSecrets } from '../function-secrets.ts';
import { OUTPUT_MAX_BYTES } from '../output-lines.ts';
import { hasOutput, type OutputPlace, storeOutput } from '../store-output.ts';
import { chunkOf, withLines } from './chunk-lines.ts';
import {
  type ForbiddenBatches,
  type FunctionLeaseRequest,
  leaseOfFunctions,
  leaseOfModels,
  waitForOffer,
} from './lease-lines.ts';

/** Maximum batch ids that this isolate remembers to exist. */
const KNOWN_MAX = 10_000;
const known = new Set<string>();

/**
 * Returns the object of a batch that an agent names; undefined: there is no such batch. The check is needed because any
 * name would create an object with a file that stays, so a node could fill the disk with names.
 * @throws ApiError 503
 */
export async function knownBatch(
  env: Pick<Env, 'DB' | 'BATCH'>,
  id: string,
): Promise<ReturnType<Env['BATCH']['getByName']> | undefined> {
  if (!known.has(id)) {
    const [row] = await queryOrUnavailable(
      database(env).select({ id: batches.id }).from(batches).where(eq(batches.id, id)),
    );
    if (row === undefined) return undefined;
    if (known.size >= KNOWN_MAX) known.clear();
    known.add(id);
  }
  return env.BATCH.getByName(id);
}

type Ctx = Context<{ Bindings: Env }>;

/**
 * Maximum bytes of a commit. Agents commit 1 MiB at a time, or one line: a response of 1 MiB is up to twice as long as
 * JSON inside JSON.
 */
const BODY_MAX_BYTES = 4 * 1024 * 1024;
/**
 * Maximum time for which an idle agent's request waits at the gateway. Because it waits, a new batch finds the agent
 * immediately.
 */
const WAIT_MAX_MS = 25_000;

/** Maximum bytes of the announcement of a file: its name has at most 255 characters. */
const ANNOUNCEMENT_MAX_BYTES = 2_048;

const id = z.string().max(64);
const ref = { batch: id, chunk: z.int().min(0).max(1e6), epoch: z.int().min(0).max(1e9) };
const contexts = z.array(z.string().length(64)).max(64).default([]);
const leaseSchema = z.object({
  models: z.array(z.string().min(1).max(256)).max(64),
  /**
   * For a node that runs functions: the owners whose functions it runs (absent: all), and the contexts that it has
   * loaded.
   */
  functions: z
    .object({
      owners: z.array(z.string().max(128)).max(64).optional(),
      ready: contexts,
      loading: contexts,
      stored: contexts,
      broken: contexts,
    })
    .optional(),
  prefix: z.int().min(0).optional(),
  /** Whether the answer may have the lines. Agents of earlier versions always ask for them with `/chunk`. */
  lines: z.boolean().default(false),
  wait_ms: z.int().min(0).max(WAIT_MAX_MS).default(0),
});
const refSchema = z.object(ref);
const fileSchema = z.object({ ...ref, file: z.string().max(128) });
const outputSchema = z.object({ ...ref, ...outputFileSchema.shape });
/** `declined`: why the node cannot run the function of the batch. `lines`: the node keeps the other lines. */
const releaseSchema = z.object({
  ...ref,
  declined: z.string().max(WHY_MAX).optional(),
  lines: z.array(z.int().min(0).max(CHUNK_LINES)).max(CHUNK_LINES).optional(),
});
const commitSchema = z.object({
  ...ref,
  results: z
    .array(
      z.object({
        line: z.int().min(0).max(CHUNK_LINES),
        status_code: z.int().min(0).max(599),
        request_id: z.string().max(128),
        body: z.string(),
        error: z.enum(['engine_failed', 'function_load_failed']).optional(),
        why: z.string().max(WHY_MAX).optional(),
        gpu_ms: z.number().min(0).optional(),
        files: z.array(z.string().max(128)).max(LINE_FILES_MAX).optional(),
      }),
    )
    .max(CHUNK_LINES),
  /** Output of the lease's function. */
  log: z.string().max(LOG_MAX.commit).optional(),
});

export const batchAgentRoutes = new Hono<{ Bindings: Env }>();

batchAgentRoutes.post('/lease', async (c) => {
  const node = await nodeOf(c);
  const { models, functions, prefix, lines, wait_ms: waitMs } = parsed(leaseSchema, node.body);
  if (models.length === 0 && functions === undefined)
    throw new ApiError('invalid_request', 'A request for a lease must name models or functions.');
  const ask: FunctionLeaseRequest | undefined = functions && { owners: functions.owners, held: functions };
  const forbidden: ForbiddenBatches = new Set();
  const { signal } = c.req.raw;
  // If the connection is cut, the agent sends a new request and never learns of lines that this request leased. So
  // their lease is ended here; otherwise they would not run until it expires.
  const lease = async () => {
    if (signal.aborted) return undefined;
    const granted = await (ask === undefined
      ? leaseOfModels(c.env, node, models, prefix)
      : leaseOfFunctions(c.env, node, ask, forbidden));
    if (granted === undefined || !signal.aborted) return granted;
    await (await batchOf(c, granted.batch)).release(refOf(node, granted));
    return undefined;
  };
  const first = await lease();
  const answer = async (one: GrantedLease) =>
    c.json(lines ? await withLines(storeOf(c.env), one, await batchOf(c, one.batch), refOf(node, one)) : one);
  if (first !== undefined) return answer(first);
  if (waitMs === 0) return c.body(null, 204);
  await waitForOffer(c.env, node, models, ask && { ...ask, forbidden }, waitMs);
  const second = await lease();
  return second === undefined ? c.body(null, 204) : answer(second);
});

batchAgentRoutes.post('/chunk', async (c) => {
  const node = await nodeOf(c);
  const given = parsed(refSchema, node.body);
  const batch = await batchOf(c, given.batch);
  const range = await batch.range(refOf(node, given));
  if (range === null) throw leaseOver();
  const { file, offset, length, text } = range;
  if (text !== undefined) return c.body(text.slice().buffer, 200, { 'content-type': 'application/octet-stream' });
  const content = await withStoreErrors(() => chunkOf(storeOf(c.env), file, { offset, length })).catch(
    async (error: unknown) => {
      // The file store failed and not the node, so the batch grants no lease for some seconds.
      await batch.inputFailed(
        refOf(node, given),
        error instanceof ApiError ? error.message : STORE_MESSAGES.unavailable,
      );
      throw error;
    },
  );
  const headers = { 'content-type': 'application/octet-stream', 'content-length': String(range.length) };
  return new Response(toReadableStream(content), { headers });
});

/** The code of the leased chunk's function. */
batchAgentRoutes.post('/function', async (c) => {
  const node = await nodeOf(c);
  const given = parsed(refSchema, node.body);
  const code = await (await batchOf(c, given.batch)).functionCode(refOf(node, given));
  if (code === null) throw leaseOver();
  return c.body(code, 200, { 'content-type': 'text/x-python; charset=utf-8' });
});

/** A file that lines of the leased chunk's batch name. */
batchAgentRoutes.post('/file', async (c) => {
  const node = await nodeOf(c);
  const { file, ...given } = parsed(fileSchema, node.body);
  if (!(await (await batchOf(c, given.batch)).readsFile(refOf(node, given), file))) throw leaseOver();
  const content = await withStoreErrors(() => storeOf(c.env).read(file));
  if (content === undefined) throw new ApiError('not_found', `The file ${file} was deleted.`, { param: 'file' });
  return new Response(toReadableStream(content), { headers: { 'content-type': 'application/octet-stream' } });
});

/** The secrets that the leased chunk's function declares. */
batchAgentRoutes.post('/secrets', async (c) => {
  const node = await nodeOf(c);
  const given = parsed(refSchema, node.body);
  const declared = await (await batchOf(c, given.batch)).functionSecrets(refOf(node, given));
  if (declared === null) throw leaseOver();
  const secrets = await readSecrets(c.env, declared.owner, declared.names);
  return c.json({ secrets }, 200, { 'cache-control': 'no-store' });
});

/** Announces a file that a call of the leased chunk wrote. `stored`: the node need not send it. */
batchAgentRoutes.post('/output', async (c) => {
  const node = await nodeOf(c);
  const asked = parsed(outputSchema, node.body);
  const { batch, place } = await outputOf(c, node, asked);
  const stored = await hasOutput(c.env, place, asked, Date.now());
  if (stored) await batch.outputStored(place.id);
  return c.json({ id: place.id, stored });
});

/** The bytes of an announced file. The session signs the announcement, which has the hash of the bytes. */
batchAgentRoutes.post('/output-content', async (c) => {
  const node = await nodeOf(c, announcementOf(c));
  const asked = parsed(outputSchema, node.body);
  const { batch, place } = await outputOf(c, node, asked);
  await storeOutput(c.env, place, asked, readBodyPieces(c), Date.now());
  await batch.outputStored(place.id);
  return c.json({ id: place.id, stored: true });
});

/** @throws ApiError 400 */
function announcementOf(c: Ctx): Uint8Array {
  const bytes = fromBase64url(c.req.header(OUTPUT_HEADER) ?? '', ANNOUNCEMENT_MAX_BYTES);
  if (bytes === undefined) throw new ApiError('invalid_request', `${OUTPUT_HEADER} must announce the file.`);
  return bytes;
}

/** @throws ApiError 409 if the lease has ended, 413 if the batch has too many files */
async function outputOf(c: Ctx, node: Node, { batch: id, chunk, epoch, sha256, bytes }: z.output<typeof outputSchema>) {
  const batch = await batchOf(c, id);
  const place: OutputPlace | false | null = await batch.reserveOutput(refOf(node, { chunk, epoch }), { sha256, bytes });
  if (place === null) throw leaseOver();
  if (place === false)
    throw new ApiError(
      'request_too_large',
      `The calls of a batch write at most ${BATCH_OUTPUTS_MAX} files of ${OUTPUT_MAX_BYTES} bytes together.`,
    );
  return { batch, place };
}

batchAgentRoutes.post('/commit', async (c) => {
  const node = await nodeOf(c);
  const { results, log, ...given } = parsed(commitSchema, node.body);
  const answered = results.map(({ error, why, gpu_ms: gpuMs, files, ...result }) => ({
    ...result,
    ...(files === undefined ? {} : { files }),
    ...(gpuMs === undefined ? {} : { gpu_ms: gpuMs }),
    ...(error === undefined ? {} : { error }),
    ...(why === undefined ? {} : { why }),
  }));
  const { provider, hardware } = node.entry;
  const batch = await batchOf(c, given.batch);
  return c.json(await batch.commit(refOf(node, given), answered, provider, hardware.gpus.length, log));
});

batchAgentRoutes.post('/renew', async (c) => {
  const node = await nodeOf(c);
  const given = parsed(refSchema, node.body);
  return c.json(await (await batchOf(c, given.batch)).renewal(refOf(node, given)));
});

batchAgentRoutes.post('/release', async (c) => {
  const node = await nodeOf(c);
  const { declined, lines, ...given } = parsed(releaseSchema, node.body);
  await (await batchOf(c, given.batch)).release(refOf(node, given), declined, lines);
  return c.body(null, 204);
});

/** Returns the object of a batch. @throws ApiError 409 if there is no such batch, 503 */
async function batchOf(c: Ctx, id: string) {
  const batch = await knownBatch(c.env, id);
  if (batch === undefined) throw leaseOver();
  return batch;
}

interface Node {
  entry: RegistryEntry;
  view: RegistrySnapshot;
  body: Uint8Array;
}

/**
 * Refuses a replayed request: its signature is too old, or its nonce was used before.
 * @throws ApiError 403 with this gateway's clock, 409, 429, 503
 */
async function requireFresh(env: Env, session: string, stamp: BatchStamp): Promise<void> {
  const verdict = await env.TUNNEL.getByName(session)
    .takeStamp(stamp)
    .catch((cause: unknown) => {
      throw new ApiError('server_is_overloaded', 'The session cannot be reached. Try again shortly.', { cause });
    });
  switch (verdict) {
    case 'fresh':
      return;
    case 'replayed':
      throw new ApiError('conflict', 'This request was already received.');
    case 'full':
      throw new ApiError('rate_limit_exceeded', 'This session sends too many requests.');
    case 'stale': {
      const message = `The time of the signature differs from this gateway's clock by more than ${BATCH_SKEW_MS / 1000} s, or is before the gateway's start.`;
      throw new ApiError('permission_denied', message, { headers: { [CLOCK_HEADER]: String(Date.now()) } });
    }
  }
}

/**
 * Returns the node that signed this request.
 * @param announced what it signed instead of the body
 * @throws ApiError 400, 403, 408, 409, 410, 413, 429, 503
 */
async function nodeOf(c: Ctx, announced?: Uint8Array): Promise<Node> {
  const request = c.req.raw;
  if (versionMismatch(request.headers.get(PROTOCOL_HEADER)) !== undefined)
    throw new ApiError(
      'invalid_request',
      `${PROTOCOL_HEADER} must be ${PROTOCOL_VERSION} at this gateway: upgrade the agent or the gateway.`,
    );
  const body = announced ?? (await bodyOf(c));
  const { ticket, issuer, view } = await verifyAgentTicket(
    request,
    (issuer) => issuersView(c.env, c.executionCtx, issuer),
    Date.now(),
  );
  const signed = readBatchSignature(request.headers.get(BATCH_SIGNATURE_HEADER) ?? '');
  if (signed === 'former')
    throw new ApiError('invalid_request', `${BATCH_SIGNATURE_HEADER} has neither time nor nonce: upgrade the agent.`);
  const asked = { session: ticket.session, audience: audienceOf(request), path: c.req.path };
  const good =
    signed !== undefined &&
    workerdCrypto.verify(
      ticket.sessionKey,
      batchRequestMessage({ ...asked, at: signed.at, nonce: signed.nonce }, body, workerdCrypto),
      signed.signature,
    );
  if (!good)
    throw new ApiError('permission_denied', `${BATCH_SIGNATURE_HEADER} was not made by this session for this request.`);
  await requireFresh(c.env, ticket.session, { at: signed.at, nonce: signed.nonce });
  const entry = view.nodes.get(ticket.session);
  if (entry === undefined)
    throw new ApiError('server_is_overloaded', 'The registry does not know this session yet. Try again shortly.');
  return {
    entry: { ...entry, provider: providerId({ provider: ticket.provider, issuer: issuer.name }, LOCAL_ISSUER) },
    view,
    body,
  };
}

async function bodyOf(c: Ctx): Promise<Uint8Array> {
  const length = Number(c.req.raw.headers.get('content-length') ?? Number.NaN);
  if (!(length <= BODY_MAX_BYTES))
    throw new ApiError('request_too_large', `The body must have a content-length of at most ${BODY_MAX_BYTES} bytes.`);
  return readBodyBytes(c, BODY_MAX_BYTES);
}

function parsed<T extends z.ZodType>(schema: T, body: Uint8Array): z.output<T> {
  const result = schema.safeParse(jsonOf(body));
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new ApiError('invalid_request', `The body is not valid: ${issue?.path.join('.')} ${issue?.message}.`);
}

function jsonOf(body: Uint8Array): unknown {
  try {
    return parseJson(new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(body));
  } catch {
    throw new ApiError('invalid_json', 'The body is not JSON.');
  }
}

function refOf({ entry }: Node, { chunk, epoch }: { chunk: number; epoch: number }): LeaseRef {
  return { node: entry.session, chunk, epoch };
}

function leaseOver(): ApiError {
  return new ApiError('conflict', 'This lease has ended.');
}
