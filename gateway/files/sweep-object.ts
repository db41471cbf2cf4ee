/** Deletes expired files, abandoned uploads, and stored files without a row. */
import { and, count, eq, gt, inArray, lt, lte, ne, notInArray, or, sql, sum } from 'drizzle-orm';
import { errorText } from '../../shared/text/error-text.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { FILES_BYTES, FILES_STORED } from '../observe/metric-families.ts';
import { MetricsReporter } from '../observe/metrics-reporter.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import { deleteFileRows, forgetPositions } from './deleted-file-positions.ts';
import type { FileStore } from './file-store.ts';
import { batches, files, uploadParts, uploads } from './file-tables.ts';

/** Name of the only sweep object. */
export const FILE_SWEEP_NAME = 'sweep';
const EVERY_MS = 10 * 60_000;
const DAY_MS = 86_400_000;
/** Maximum rows that one sweep handles. The next sweep handles more. */
const ROWS_MAX = 1_000;
/** Ids per statement: D1 binds at most 100 values. */
const IDS_PER_STATEMENT = 90;
/**
 * A stored file without a row is deleted only after this time: a new file has no row yet, and an upload may take hours.
 */
const UNFINISHED_MS = DAY_MS;
/**
 * If at least this many files are stored and more than half of them have no row, the store or the database probably
 * belongs to another gateway. Then nothing is deleted.
 */
const SUSPICIOUS_FILES = 20;
/** Maximum stored files without a row that one sweep deletes. */
const ORPHANS_MAX = 10_000;

/** The sweep object. It has an alarm every ten minutes while there are files. */
export class FileSweepObject extends GatewayObject {
  #stored: { purpose: string; files: number; bytes: number }[] = [];
  readonly #reporter = new MetricsReporter((now) => {
    for (const { purpose, files: stored, bytes } of this.#stored) {
      now.set(FILES_STORED, [purpose], stored);
      now.set(FILES_BYTES, [purpose], bytes);
    }
  });

  /** Starts the sweeps. Called when something was stored. Idempotent. */
  async wake(): Promise<void> {
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
  }

  /** Runs a sweep. Failed steps are retried at the next alarm. */
  async alarm(): Promise<void> {
    const { FILES: store } = this.env;
    if (store === undefined) return;
    let more = true;
    const steps = [
      () => this.#expireFiles(store),
      () => forgetPositions(this.env, this.#now),
      () => this.#dropUploads(store),
      () => this.#resumeBatches(),
      () => this.#dropUnknown(store),
      () => this.#count(),
      async () => {
        more = await this.#hasRows();
      },
    ];
    // Steps run one after another, and a failed step does not prevent the next one.
    for (const step of steps)
      await step().catch((error: unknown) => {
        const why = errorText(error);
        console.error(`the sweep of files failed and is repeated in ${EVERY_MS} ms: ${why}`);
      });
    if (more) await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
  }

  /** Deletes expired files, except those that a batch reads, which are deleted after its end. */
  async #expireFiles(store: FileStore): Promise<void> {
    const db = database(this.env);
    const input = sql<string>`${batches.summary} ->> 'input_file_id'`;
    const read = db.select({ id: input }).from(batches).where(eq(batches.open, true));
    const expired = await queryOrUnavailable(
      db
        .select({ id: files.id })
        .from(files)
        .where(and(lte(files.expiresAt, this.#now), notInArray(files.id, read)))
        .limit(ROWS_MAX),
    );
    // Bytes are deleted first: readers never see an expired row, and if the store fails, the rows remain for the next
    // sweep.
    for (const some of together(expired.map(({ id }) => id))) {
      for (const id of some) await store.delete(id);
      await deleteFileRows(this.env, some, this.#now);
    }
  }

  /**
   * Deletes the parts of uploads that have ended or expired. The uploads' own rows are deleted a day later, so that a
   * late client can read their status.
   */
  async #dropUploads(store: FileStore): Promise<void> {
    const db = database(this.env);
    const over = or(ne(uploads.status, 'pending'), lte(uploads.expiresAt, this.#now));
    const parts = await queryOrUnavailable(
      db
        .select({ id: uploadParts.id, fileId: uploadParts.fileId })
        .from(uploadParts)
        .innerJoin(uploads, eq(uploads.id, uploadParts.uploadId))
        .where(over)
        .limit(ROWS_MAX),
    );
    for (const { fileId } of parts) await store.delete(fileId);
    for (const some of together(parts.map(({ id }) => id)))
      await queryOrUnavailable(db.delete(uploadParts).where(inArray(uploadParts.id, some)));
    if (parts.length < ROWS_MAX)
      await queryOrUnavailable(db.delete(uploads).where(lt(uploads.expiresAt, this.#now - DAY_MS)));
  }

  /** Continues batches that lost their alarm, and lets batches save a summary that could not be saved before. */
  async #resumeBatches(): Promise<void> {
    const { kv } = this.ctx.storage;
    const open = await queryOrUnavailable(
      database(this.env)
        .select({ id: batches.id })
        .from(batches)
        .where(and(eq(batches.open, true), gt(batches.id, kv.get<string>('nudged') ?? '')))
        .orderBy(batches.id)
        .limit(ROWS_MAX),
    );
    let failed = 0;
    for (const { id } of open)
      await this.env.BATCH.getByName(id)
        .nudge()
        .catch(() => failed++);
    // The next sweep continues after the last of these batches, or starts again from the first one.
    kv.put('nudged', open.length < ROWS_MAX ? '' : (open.at(-1)?.id ?? ''));
    if (failed > 0) throw new Error(`${failed} of ${open.length} open batches did not answer`);
  }

  /**
   * Once a day: deletes stored files without a row. A gateway that is killed between storing a file and inserting its
   * row leaves such a file.
   */
  async #dropUnknown(store: FileStore): Promise<void> {
    const { kv } = this.ctx.storage;
    if (this.#now - (kv.get<number>('unknown') ?? 0) < DAY_MS) return;
    const before = this.#now - UNFINISHED_MS;
    await store.dropUnfinished(before);
    const unknown: string[] = [];
    let listed = 0;
    let old: string[] = [];
    for await (const { id, modifiedMs } of store.list()) {
      listed += 1;
      if (modifiedMs < before) old.push(id);
      if (old.length < IDS_PER_STATEMENT) continue;
      unknown.push(...(await this.#unknownOf(old)));
      old = [];
      if (unknown.length >= ORPHANS_MAX) break;
    }
    unknown.push(...(await this.#unknownOf(old)));
    kv.put('unknown', this.#now);
    if (listed >= SUSPICIOUS_FILES && unknown.length > listed / 2) {
      console.error(
        `${unknown.length} of ${listed} stored files are unknown to this gateway: does the file store belong to another gateway? No file is deleted.`,
      );
      return;
    }
    for (const id of unknown) await store.delete(id);
  }

  async #unknownOf(ids: readonly string[]): Promise<string[]> {
    if (ids.length === 0) return [];
    const db = database(this.env);
    const [asFiles, asParts] = await queryOrUnavailable(
      db.batch([
        db.select({ id: files.id }).from(files).where(inArray(files.id, ids)),
        db.select({ id: uploadParts.fileId }).from(uploadParts).where(inArray(uploadParts.fileId, ids)),
      ]),
    );
    const known = new Set([...asFiles, ...asParts].map(({ id }) => id));
    return ids.filter((id) => !known.has(id));
  }

  /** Counts files and bytes for /metrics. */
  async #count(): Promise<void> {
    const { purpose, bytes } = files;
    const rows = await queryOrUnavailable(
      database(this.env)
        .select({ purpose, files: count(), bytes: sum(bytes) })
        .from(files)
        .groupBy(purpose),
    );
    this.#stored = rows.map((row) => ({ purpose: row.purpose, files: row.files, bytes: Number(row.bytes) }));
    this.#reporter.touch(this.env, this.ctx, this.#now);
  }

  async #hasRows(): Promise<boolean> {
    const db = database(this.env);
    const [some, others] = await queryOrUnavailable(
      db.batch([
        db.select({ id: files.id }).from(files).limit(1),
        db.select({ id: uploads.id }).from(uploads).limit(1),
      ]),
    );
    return some.length + others.length > 0;
  }

  get #now(): number {
    return this.ctx.clock.now();
  }
}

function* together(ids: readonly string[]): Generator<string[]> {
  for (let at = 0; at < ids.length; at += IDS_PER_STATEMENT) yield ids.slice(at, at + IDS_PER_STATEMENT);
}

/** Starts the sweeps. Failures are ignored: the next upload starts them. */
export async function wakeSweep({ FILE_SWEEP }: Env): Promise<void> {
  await FILE_SWEEP.getByName(FILE_SWEEP_NAME)
    .wake()
    .catch(() => {});
}
