import { createHash } from 'node:crypto';
import { inArray } from 'drizzle-orm';
import { INPUT_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import type { LineErrorCode } from '../../shared/batch/line-results.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { readGatewaySettings } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import { fileBytesInFlight } from '../files/bytes-in-flight.ts';
import { quotaUse } from '../files/file-quota.ts';
import { files } from '../files/file-tables.ts';
import { storeOf } from '../files/store-access.ts';
import type { BatchRecord } from './batch-record.ts';
import type { BatchSpec, WrittenFiles } from './batch-spec.ts';
import { outputLines } from './output-lines.ts';
import { FileQuotaError } from './step-failures.ts';

/** Default lifetime of output files. */
export const OUTPUT_S = 30 * 86_400;
/**
 * Maximum bytes of lines without a response, in addition to the results. Such a line contains only its `custom_id`,
 * which is a part of its input line, and one sentence.
 */
const WITHOUT_ANSWERS_BYTES = 2 * INPUT_MAX_BYTES;

/** Ids per statement: D1 binds at most 100 values. */
const IDS_PER_STATEMENT = 90;
/** Approximate bytes of the text around a result: ids and names. */
const NAME_BYTES = 256;

const KINDS = ['output', 'error'] as const;

interface FinishOptions {
  env: Env;
  record: BatchRecord;
  spec: BatchSpec;
  /** Error code of lines without a result. */
  unexecuted: LineErrorCode;
  /** The status that the batch gets. */
  to: 'completed' | 'expired' | 'cancelled';
  nowMs: number;
}

/**
 * True: if the input cannot be read any more, lines are written without their `custom_id`. False: writing then fails,
 * and the batch waits for the file until its window ends.
 */
function mayLackInput({ record, nowMs }: FinishOptions): boolean {
  return nowMs >= record.state.times.expires_at * 1_000;
}

/**
 * Writes the output and the error file. A file's id is null if the file would be empty. The ids are derived from the
 * batch's id. If the gateway is killed while it writes, the next try overwrites the same files.
 */
export async function writeFiles(options: FinishOptions): Promise<WrittenFiles> {
  const { owner } = options.spec;
  const { most, wanted } = await roomOf(options);
  const end = fileBytesInFlight.take(owner, Math.min(most, wanted), options.nowMs);
  try {
    const written = await writeBoth(options, most);
    await settleOutputs(options);
    return written;
  } finally {
    end();
  }
}

async function writeBoth(options: FinishOptions, most: number): Promise<WrittenFiles> {
  const { total, completed } = options.record.state.counts;
  const leftOut = new Set<number>();
  const output = completed === 0 ? undefined : await write(options, most, true, leftOut);
  const hasErrors = total > completed || leftOut.size > 0;
  const errors = hasErrors ? await write(options, most - (output?.bytes ?? 0), false, leftOut) : undefined;
  return { outputFileId: output?.id ?? null, errorFileId: errors?.id ?? null, leftOut: leftOut.size };
}

/** Returns how many bytes the results may occupy, and about how many they need. @throws FileQuotaError, ApiError 503 */
async function roomOf(options: FinishOptions): Promise<{ most: number; wanted: number }> {
  const { env, record, spec, to, nowMs } = options;
  const { counts, resultBytes = 0 } = record.state;
  const wanted = Math.min(record.maxBytes, resultBytes + counts.total * NAME_BYTES);
  // A batch without any response needs no quota. The database is not read then, so that such a batch can be canceled
  // while the database is unavailable.
  if (resultBytes === 0) return { most: record.maxBytes, wanted };
  const { files: limits } = await readGatewaySettings(env, nowMs);
  const used = (await quotaUse(env, spec.owner, nowMs)).bytes - (await writtenBytes(env, spec.id));
  const room = Math.max(0, limits.bytes - used - fileBytesInFlight.of(spec.owner, nowMs));
  // A completed batch waits until the results fit into the owner's quota, at most until its window ends. Afterwards,
  // and in a canceled batch, results that do not fit are left out.
  if (room >= wanted || to !== 'completed' || mayLackInput(options))
    return { most: Math.min(record.maxBytes, room), wanted };
  throw new FileQuotaError(`The results need ${wanted} bytes, more than your quota has left: delete some files.`);
}

/** Returns the bytes of the batch's files that an earlier try wrote. They will be overwritten. @throws ApiError 503 */
async function writtenBytes(env: Env, batch: string): Promise<number> {
  const ids = KINDS.map((kind) => resultFileId(batch, kind));
  const rows = await queryOrUnavailable(
    database(env).select({ bytes: files.bytes }).from(files).where(inArray(files.id, ids)),
  );
  return rows.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Discards the files of a batch, even if they were just being written. The next sweep deletes them.
 * @param outputs files that its calls wrote
 */
export async function discardFiles(
  env: Env,
  batch: string,
  nowMs: number,
  outputs: readonly string[] = [],
): Promise<void> {
  await setExpiry(env, [...KINDS.map((kind) => resultFileId(batch, kind)), ...outputs], nowMs);
}

/** Files that results name live as long as the result files. A file that no result names is discarded. */
async function settleOutputs({ env, record: { outputs }, spec, nowMs }: FinishOptions): Promise<void> {
  await setExpiry(env, outputs.ids({ named: true }), nowMs + (spec.outputExpiresS ?? OUTPUT_S) * 1_000);
  await setExpiry(env, outputs.ids({ named: false }), nowMs);
}

async function setExpiry(env: Env, ids: readonly string[], expiresAt: number): Promise<void> {
  for (let at = 0; at < ids.length; at += IDS_PER_STATEMENT) {
    const some = inArray(files.id, ids.slice(at, at + IDS_PER_STATEMENT));
    await queryOrUnavailable(database(env).update(files).set({ expiresAt }).where(some));
  }
}

function resultFileId(batch: string, kind: (typeof KINDS)[number]): string {
  return `file-${createHash('sha256').update(`${batch}/${kind}`).digest('hex').slice(0, 24)}`;
}

async function write(
  options: FinishOptions,
  maxBytes: number,
  successes: boolean,
  leftOut: Set<number>,
): Promise<{ id: string; bytes: number }> {
  const { env, record, spec, unexecuted, nowMs } = options;
  const store = storeOf(env);
  const id = resultFileId(spec.id, successes ? 'output' : 'error');
  const lines = outputLines({
    batch: spec.id,
    input: spec.inputFileId,
    store,
    chunks: record.ledger.chunks,
    results: (chunk) => record.results(chunk),
    successes,
    unexecuted,
    mayLackInput: mayLackInput(options),
    leftOut,
    maxBytes,
    ...(record.state.givenUp === undefined ? {} : { why: record.state.givenUp.why }),
  });
  const { bytes } = await store.put(id, lines, maxBytes + WITHOUT_ANSWERS_BYTES);
  const row = {
    id,
    owner: spec.owner,
    createdBy: spec.account.keyId,
    purpose: 'batch_output',
    filename: `${spec.id}_${successes ? 'output' : 'error'}.jsonl`,
    bytes,
    createdAt: nowMs,
    expiresAt: nowMs + (spec.outputExpiresS ?? OUTPUT_S) * 1_000,
  };
  await queryOrUnavailable(database(env).insert(files).values(row).onConflictDoUpdate({ target: files.id, set: row }));
  return { id, bytes };
}
