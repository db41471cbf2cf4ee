/**
 * Objects of batches and files with a clock that only the test advances, over real storage: SQLite, the accounts'
 * migrations, a directory. Other objects are mocked: no node has joined, and usage is only recorded.
 */
import { join } from 'node:path';
import type { AttemptSettlement } from '../../gateway/accounts/limits/limits-object.ts';
import { BatchObject } from '../../gateway/batch/batch-object.ts';
import type { BatchSpec } from '../../gateway/batch/batch-spec.ts';
import type { Env } from '../../gateway/env.ts';
import type { FileStore } from '../../gateway/files/file-store.ts';
import { FileSweepObject } from '../../gateway/files/sweep-object.ts';
import { D1, migrateDatabase } from '../../gateway/hosts/node/d1.ts';
import { DirectoryFileStore } from '../../gateway/hosts/node/directory-file-store.ts';
import { NodeStorage } from '../../gateway/hosts/node/object-storage.ts';
import { OutputGate } from '../../gateway/hosts/node/output-gate.ts';
import { readMigrations } from '../../gateway/hosts/node/serve/program-files.ts';
import { Database } from '../../gateway/hosts/node/sqlite.ts';
import type { MetricsReport } from '../../gateway/observe/metrics-reporter.ts';
import type { ObjectContext } from '../../gateway/platform/object-context.ts';
import { storageHealth } from '../../gateway/platform/storage/storage-health.ts';
import type { UsageRow } from '../../gateway/usage/usage-row.ts';
import { temporaryDirectory } from './processes.ts';
import { ROOT } from './where.ts';

/** The context of one object. The test triggers the object's alarm. */
class VirtualContext implements ObjectContext {
  readonly name: string;
  readonly storage: ObjectContext['storage'];
  readonly health = storageHealth;
  readonly sockets = undefined as unknown as ObjectContext['sockets'];
  readonly clock: ObjectContext['clock'];
  readonly #gate: OutputGate;
  alarmAt: number | null = null;

  constructor(name: string, database: Database, now: () => number) {
    this.name = name;
    const alarm = {
      get: () => this.alarmAt,
      set: (at: number) => {
        this.alarmAt = at;
      },
      delete: () => {
        this.alarmAt = null;
      },
    };
    this.#gate = new OutputGate(database, (error) => {
      throw error;
    });
    this.storage = new NodeStorage(database, this.#gate, alarm);
    this.clock = { now, after: () => () => {}, every: () => () => {} };
  }

  waitUntil(work: Promise<unknown>): void {
    void work.catch(() => {});
  }

  commit(): void {
    this.#gate.commit();
  }
}

export class VirtualGateway {
  /** Milliseconds since 1970. */
  now = Date.UTC(2026, 10, 25, 12);
  readonly env: Env;
  /** Usage records that the hour's objects would get. */
  readonly used: UsageRow[] = [];
  readonly settled: AttemptSettlement[] = [];
  /** The reports from which /metrics is made. */
  readonly reports: MetricsReport[] = [];
  /** Tokens that count as used in this month. */
  usedTokens = 0;
  /** Maximum size of a batch's output; undefined: the gateway's. */
  outputMaxBytes: number | undefined;
  readonly database: Database;
  readonly #directory: string;
  readonly #batches = new Map<string, { object: BatchObject; context: VirtualContext }>();

  private constructor(directory: string, database: Database) {
    this.#directory = directory;
    this.database = database;
    const nothing = { getByName: () => ({ offer: async () => {}, view: async () => undefined }) };
    const positions = new Map<string, number>();
    const limits = {
      settle: async (source: string, items: readonly { position: number; settlement: AttemptSettlement }[]) => {
        for (const { position, settlement } of items) {
          if (position <= (positions.get(source) ?? 0)) continue;
          positions.set(source, position);
          this.settled.push(settlement);
          this.usedTokens += settlement.prompt + settlement.completion;
        }
      },
      uses: async ({ key }: { key?: { tokens_per_month?: number } }) => {
        const allowed = key?.tokens_per_month;
        const use = { limit: 'tokens_per_month', allowed, used: this.usedTokens };
        return { key: allowed === undefined ? [] : [use], user: [], project: [] };
      },
    };
    this.env = {
      DB: new D1(database),
      FILES: new DirectoryFileStore(join(directory, 'files')),
      BATCH: { getByName: (id: string) => this.batch(id).object },
      BATCH_QUEUE: nothing,
      REGISTRY: nothing,
      LIMITS: { getByName: () => limits },
      OBSERVE: { getByName: () => ({ add: async (report: MetricsReport) => void this.reports.push(report) }) },
      USAGE: { getByName: () => ({ add: async (rows: readonly UsageRow[]) => void this.used.push(...rows) }) },
    } as unknown as Env;
  }

  static async open(): Promise<VirtualGateway> {
    const directory = await temporaryDirectory('otela-virtual');
    const database = new Database(join(directory, 'accounts.sqlite'));
    migrateDatabase(database, await readMigrations(join(ROOT, 'migrations')));
    return new VirtualGateway(directory, database);
  }

  get store(): FileStore {
    if (this.env.FILES === undefined) throw new Error('no files');
    return this.env.FILES;
  }

  /** Path of a stored file. */
  path(id: string): string {
    return join(this.#directory, 'files', id);
  }

  batch(id: string): { object: BatchObject; context: VirtualContext } {
    const known = this.#batches.get(id);
    if (known !== undefined) return known;
    const context = new VirtualContext(id, new Database(join(this.#directory, `${id}.sqlite`)), () => this.now);
    const made = { object: new BatchObject(context, this.env, this.outputMaxBytes), context };
    this.#batches.set(id, made);
    return made;
  }

  /** Like kill -9: only written data stays, including the alarm. */
  kill(id: string): void {
    const { context } = this.batch(id);
    context.commit();
    this.#batches.delete(id);
    this.batch(id).context.alarmAt = context.alarmAt;
  }

  sweep(): { object: FileSweepObject; context: VirtualContext } {
    const context = new VirtualContext('sweep', new Database(join(this.#directory, 'sweep.sqlite')), () => this.now);
    return { object: new FileSweepObject(context, this.env), context };
  }

  /** Inserts a row into the accounts' tables. */
  insert(table: string, row: Record<string, unknown>): void {
    const names = Object.keys(row);
    this.database.rows(
      `INSERT INTO ${table} (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`,
      Object.values(row),
    );
  }

  /** Stores a file with these lines, and its row. */
  async input(id: string, lines: readonly string[]): Promise<number> {
    async function* content() {
      yield new TextEncoder().encode(lines.map((line) => `${line}\n`).join(''));
    }
    const { bytes } = await this.store.put(id, content(), 1e9);
    this.insert('files', {
      id,
      owner: 'key:k',
      created_by: 'k',
      purpose: 'batch',
      filename: 'in.jsonl',
      bytes,
      created_at: this.now,
      expires_at: this.now + 86_400_000 * 30,
    });
    return bytes;
  }

  /** Runs the alarm of a batch until it wants to wait. */
  async settle(id: string): Promise<void> {
    const { object, context } = this.batch(id);
    for (let i = 0; i < 50 && context.alarmAt !== null && context.alarmAt <= this.now; i++) {
      context.alarmAt = null;
      await object.alarm();
    }
  }

  /** Advances the clock by `ms`, and runs each alarm of the batch that becomes due. */
  async pass(id: string, ms: number): Promise<void> {
    const end = this.now + ms;
    const { context } = this.batch(id);
    while (context.alarmAt !== null && context.alarmAt <= end) {
      this.now = Math.max(this.now, context.alarmAt);
      await this.settle(id);
    }
    this.now = end;
  }

  async text(id: string | null): Promise<string[]> {
    if (id === null) return [];
    const pieces: Uint8Array[] = [];
    for await (const piece of (await this.store.read(id)) ?? []) pieces.push(piece);
    return Buffer.concat(pieces).toString().trimEnd().split('\n');
  }
}

/** A batch of the bootstrap key, because no store is asked about that key. */
export function specOf(id: string, change: Partial<BatchSpec> = {}): BatchSpec {
  return {
    id,
    owner: 'key:k',
    account: {
      keyId: 'bootstrap',
      role: 'consumer',
      provider: undefined,
      grantedBy: undefined,
      groups: [],
      userId: undefined,
      projectId: undefined,
      scopes: undefined,
      restrictions: [],
      limits: undefined,
      mayOptOut: false,
      resumes: false,
      startWaitMs: undefined,
      routing: [],
      traced: false,
      prefixes: false,
      seal: '',
      expiresAt: undefined,
      seen: 0,
    },
    endpoint: '/v1/chat/completions',
    inputFileId: 'file-000000000000000000000000',
    inputExists: true,
    windowS: 86_400,
    metadata: null,
    outputExpiresS: null,
    ...change,
  };
}

export const lineOf = (id: string) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'm', messages: [{ role: 'user', content: id }] },
  });

export const answerOf = (line: number, tokens = 2) => ({
  line,
  status_code: 200,
  request_id: `r${line}`,
  body: JSON.stringify({ object: 'chat.completion', usage: { prompt_tokens: 1, completion_tokens: tokens } }),
});
