/** OpenAI's `/v1/batches`, with pause and resume added. */
import { randomBytes } from 'node:crypto';
import { and, eq } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { BATCH_ENDPOINTS, type BatchEndpoint, isJsonObject, type Json } from '../../shared/batch/batch-line.ts';
import type { BatchStatus } from '../../shared/batch/batch-status.ts';
import { readCompletionWindow } from '../../shared/batch/completion-window.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { type Account, isRoleAtLeast, requireEndpoint } from '../accounts/account.ts';
import type { AccountScope } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable, requireWritable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { fileCaller } from '../files/file-owner.ts';
import { listEnvelope, pageOrder, readFilePage } from '../files/file-pages.ts';
import { requireFileQuota } from '../files/file-quota.ts';
import { batches, files } from '../files/file-tables.ts';
import { storeOf, withStoreErrors } from '../files/store-access.ts';
import { readParsedBody } from '../http/parse-body.ts';
import { arrivedLines } from './arrived-results.ts';
import type { BatchObjectJson, BatchSpec } from './batch-spec.ts';
import { addDependencies, readAfter } from './dependencies/add-dependencies.ts';
import { keyIfBelowLimit, requireOpenBelowLimit } from './open-batch-quota.ts';

type Ctx = Context<{ Bindings: Env }>;

const METADATA = { pairs: 16, name: 64, value: 512 };
const OUTPUT_EXPIRES_S = { least: 3_600, most: 2_592_000 };
export const batchRoutes = new Hono<{ Bindings: Env }>();

batchRoutes.post('/', async (c) => {
  const caller = await fileCaller(c);
  const { account, owner, limits } = caller;
  requireWritable();
  storeOf(c.env);
  const body = await readParsedBody(c, z.looseObject({}));
  const { after, ...wanted } = wantedOf(body);
  requireEndpoint(account, { path: wanted.endpoint });
  const db = database(c.env);
  await requireOpenBelowLimit(c.env, owner, limits.open_batches);
  // The input needs no quota: one file may be the input of many batches. But each batch writes its own output files.
  await requireFileQuota(c.env, caller, 1, Date.now());
  const [input] = await queryOrUnavailable(
    db
      .select()
      .from(files)
      .where(and(eq(files.id, wanted.inputFileId), eq(files.owner, owner))),
  );
  const id = `batch_${randomBytes(12).toString('hex')}`;
  const spec: BatchSpec = {
    ...wanted,
    id,
    owner,
    account,
    // If the file belongs to another owner, the input check fails as if the file did not exist.
    inputExists: input !== undefined,
    ...(input === undefined ? {} : { inputBytes: input.bytes }),
    ...(await addDependencies(c.env, { id, owner, after, windowS: wanted.windowS }, Date.now())),
  };
  const batch = c.env.BATCH.getByName(id);
  const shown = await batch.create(spec);
  const createdBy = keyIfBelowLimit(c.env, owner, account.keyId, limits.open_batches);
  const row = { id, owner, createdBy, createdAt: shown.created_at * 1_000, open: true, summary: shown };
  try {
    await queryOrUnavailable(db.insert(batches).values(row).onConflictDoNothing());
  } catch (error) {
    await batch.cancel(); // The row may have been inserted although the owner gets an error, so the batch is canceled.
    await requireOpenBelowLimit(c.env, owner, limits.open_batches);
    throw error;
  }
  await batch.start(spec);
  return c.json(shown);
});

/** The query `scope=all`, which OpenAI's API does not have, returns the batches of all owners, each with its owner. */
batchRoutes.get('/', async (c) => {
  const { account, owner } = await fileCaller(c);
  const ofAll = isOfAll(c.req.query('scope'), account);
  const { limit, after, ascending } = readFilePage((name) => c.req.query(name), { limit: 20, most: 100 });
  const from = after === undefined ? undefined : await rowOf(c.env, { account, owner }, after);
  const { behind, order } = pageOrder(batches, ascending, from);
  const rows = await queryOrUnavailable(
    database(c.env)
      .select()
      .from(batches)
      .where(and(ofAll ? undefined : eq(batches.owner, owner), behind))
      .orderBy(...order)
      .limit(limit + 1),
  );
  return c.json(
    listEnvelope(
      rows.map((row) => (ofAll ? withOwner(row.summary as BatchObjectJson, row) : (row.summary as BatchObjectJson))),
      limit,
    ),
  );
});

/**
 * The results that arrived after the position `after`, while the batch runs. Only the owner reads them. An ended batch
 * has its results in its files, and here none.
 */
batchRoutes.get('/:id/results', async (c) => {
  const { account, owner } = await fileCaller(c);
  const row = await rowOf(c.env, { account, owner }, c.req.param('id'));
  if (row.owner !== owner) throw new ApiError('permission_denied', "Only a batch's owner can read its results.");
  const after = positionOf(c.req.query('after'));
  const arrived = await c.env.BATCH.getByName(row.id).arrivedAfter(after);
  const { shown, page } = arrived ?? { shown: row.summary as BatchObjectJson, page: { commits: [], hasMore: false } };
  const { commits, hasMore } = page;
  const asked = { batch: row.id, input: shown.input_file_id, commits };
  const lines = await withStoreErrors(async () => arrivedLines({ ...asked, store: storeOf(c.env) }));
  const last = commits.at(-1)?.number ?? after;
  // The lines are text, because parsing would lose digits of integers above 2^53.
  const more = JSON.stringify({ has_more: hasMore, after: String(last), batch: shown }).slice(1);
  return c.body(`{"object":"list","data":[${lines.join(',')}],${more}`, 200, { 'content-type': 'application/json' });
});

/** The last output of the function of a batch, also while it runs. Only the owner reads it. */
batchRoutes.get('/:id/log', async (c) => {
  const { account, owner } = await fileCaller(c);
  const row = await rowOf(c.env, { account, owner }, c.req.param('id'));
  if (row.owner !== owner) throw new ApiError('permission_denied', "Only a batch's owner can read its log.");
  return c.json({ object: 'otela.batch.log', text: (await c.env.BATCH.getByName(row.id).log()) ?? '' });
});

/** How the counts of a batch developed. */
batchRoutes.get('/:id/series', async (c) => {
  const { account, owner } = await fileCaller(c);
  const row = await rowOf(c.env, { account, owner }, c.req.param('id'));
  return c.json({ object: 'list', data: (await c.env.BATCH.getByName(row.id).series()) ?? [] });
});

/** @throws ApiError 400 */
function positionOf(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,15}$/.test(text))
    throw new ApiError('invalid_request', "'after' must be the 'after' of an earlier response.", { param: 'after' });
  return Number(text);
}

batchRoutes.get('/:id', async (c) => c.json(await shownOf(c, c.req.param('id'))));
batchRoutes.post('/:id/cancel', (c) => changed(c, 'cancel', (batch) => batch.cancel()));
batchRoutes.post('/:id/pause', (c) => changed(c, 'pause', (batch) => batch.pause(true)));
batchRoutes.post('/:id/resume', (c) => changed(c, 'resume', (batch) => batch.pause(false)));

type BatchStub = ReturnType<Env['BATCH']['getByName']>;

async function changed(
  c: Ctx,
  verb: string,
  act: (batch: BatchStub) => Promise<BatchObjectJson | { refused: BatchStatus }>,
): Promise<Response> {
  const caller = await fileCaller(c);
  requireWritable();
  const { id } = await rowOf(c.env, caller, c.req.param('id') ?? '', CHANGES);
  const answer = await act(c.env.BATCH.getByName(id));
  if ('refused' in answer) throw new ApiError('conflict', `Cannot ${verb} a batch with status '${answer.refused}'.`);
  return c.json(answer);
}

async function shownOf(c: Ctx, id: string): Promise<BatchObjectJson> {
  const caller = await fileCaller(c);
  const row = await rowOf(c.env, caller, id);
  const shown = (await c.env.BATCH.getByName(row.id).show()) ?? (row.summary as BatchObjectJson);
  return row.owner === caller.owner ? shown : withOwner(shown, row);
}

/** Scopes of an operator's key that sees, or changes, the batches of others. */
const SEES: readonly AccountScope[] = ['admin:read', 'admin'];
const CHANGES: readonly AccountScope[] = ['admin'];

const isOperator = ({ role, scopes }: Pick<Account, 'role' | 'scopes'>, anyOf: readonly AccountScope[]) =>
  isRoleAtLeast(role, 'operator') && (scopes === undefined || anyOf.some((scope) => scopes.includes(scope)));

/** True if `scope` is `all`. @throws ApiError 400 for another value, 403 for a caller that may not see all batches */
function isOfAll(scope: string | undefined, account: Account): boolean {
  if (scope === undefined) return false;
  if (scope !== 'all') throw new ApiError('invalid_request', "'scope' may only be 'all'.", { param: 'scope' });
  if (!isOperator(account, SEES)) {
    const message = 'Only keys of operators with the scope "admin" or "admin:read" can list the batches of all users.';
    throw new ApiError('permission_denied', message);
  }
  return true;
}

function withOwner(shown: BatchObjectJson, { owner }: { owner: string }) {
  return { ...shown, x_otela: { ...shown.x_otela, owner } };
}

/**
 * Returns the row of a batch. Operators can see, pause and cancel any batch. Only its owner can read its files, which
 * contain prompts and responses.
 * @param anyOf scopes with which an operator's key may do so
 * @throws ApiError 404 for a batch that the caller may not see
 */
async function rowOf(env: Env, { account, owner }: { account: Account; owner: string }, id: string, anyOf = SEES) {
  const [row] = await queryOrUnavailable(
    database(env)
      .select()
      .from(batches)
      .where(and(eq(batches.id, id), isOperator(account, anyOf) ? undefined : eq(batches.owner, owner))),
  );
  if (row === undefined)
    throw new ApiError('not_found', `No batch found with id '${id.slice(0, 64)}'.`, { param: 'id' });
  return row;
}

/** Parses the body of a request that creates a batch. @throws ApiError 400 in OpenAI's form */
function wantedOf(body: Json) {
  const { input_file_id: input, endpoint, completion_window: window, metadata, output_expires_after: expires } = body;
  const { x_otela: more } = body;
  if (typeof input !== 'string' || input === '')
    throw new ApiError('invalid_request', "Missing required parameter: 'input_file_id'.", { param: 'input_file_id' });
  if (!BATCH_ENDPOINTS.some((one) => one === endpoint))
    throw new ApiError('invalid_value', `Invalid value: 'endpoint' must be one of ${BATCH_ENDPOINTS.join(', ')}.`, {
      param: 'endpoint',
    });
  const windowS = readCompletionWindow(window);
  if (windowS === undefined)
    throw new ApiError(
      'invalid_value',
      "Invalid value: 'completion_window' must be '1h' to '720h', or '1d' to '30d'.",
      {
        param: 'completion_window',
      },
    );
  return {
    inputFileId: input,
    endpoint: endpoint as BatchEndpoint,
    windowS,
    metadata: metadataOf(metadata),
    outputExpiresS: expiresOf(expires),
    after: readAfter(isJsonObject(more) ? more.after : undefined),
  };
}

function metadataOf(value: unknown): Record<string, string> | null {
  if (value === undefined || value === null) return null;
  const wrong = new ApiError(
    'invalid_type',
    `Invalid type for 'metadata': at most ${METADATA.pairs} strings of at most ${METADATA.value} characters, with keys of at most ${METADATA.name} characters.`,
    { param: 'metadata' },
  );
  if (!isJsonObject(value)) throw wrong;
  const pairs = Object.entries(value);
  if (pairs.length > METADATA.pairs) throw wrong;
  const metadata: Record<string, string> = {};
  for (const [name, text] of pairs) {
    if (typeof text !== 'string' || text.length > METADATA.value || name.length > METADATA.name) throw wrong;
    metadata[name] = text;
  }
  return metadata;
}

function expiresOf(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  const { anchor, seconds } = isJsonObject(value) ? value : {};
  if (anchor === 'created_at' && typeof seconds === 'number' && Number.isInteger(seconds)) {
    if (seconds >= OUTPUT_EXPIRES_S.least && seconds <= OUTPUT_EXPIRES_S.most) return seconds;
  }
  const message = `'output_expires_after' must have the anchor 'created_at' and ${OUTPUT_EXPIRES_S.least} to ${OUTPUT_EXPIRES_S.most} seconds.`;
  throw new ApiError('invalid_request', message, { param: 'output_expires_after' });
}
