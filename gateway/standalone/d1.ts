/**
 * D1 for plain workerd: a SQLite Durable Object that answers the protocol which workerd's own D1 binding
 * (`cloudflare-internal:d1-api`) speaks to Cloudflare's D1. The protocol is internal, so workerd is pinned and
 * test/e2e/standalone/d1.test.ts holds both sides to the public interface.
 */
import { DurableObject } from 'cloudflare:workers';
import type { Migration } from './config.ts';

interface D1Env {
  STORE: DurableObjectNamespace<D1Store>;
  MIGRATIONS: Migration[];
}

interface Query {
  sql: string;
  params?: unknown[];
}

export class D1Store extends DurableObject<D1Env> {
  /** Migrates before the first query; if that fails every query does, and with the reason. */
  constructor(ctx: DurableObjectState, env: D1Env) {
    super(ctx, env);
    const { sql } = ctx.storage;
    // wrangler's own table, so that a database may move between the two.
    sql.exec(`CREATE TABLE IF NOT EXISTS d1_migrations (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE,
      applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)`);
    const done = new Set([...sql.exec<{ name: string }>('SELECT name FROM d1_migrations')].map((row) => row.name));
    for (const { name, statements } of env.MIGRATIONS.filter((migration) => !done.has(migration.name))) {
      ctx.storage.transactionSync(() => {
        for (const statement of statements) sql.exec(statement);
        sql.exec('INSERT INTO d1_migrations (name) VALUES (?)', name);
      });
    }
  }

  /** `POST /query | /execute` with one query or a list: a list is one transaction. Failures are answers, not statuses. */
  override async fetch(request: Request): Promise<Response> {
    const body: Query | Query[] = await request.json();
    try {
      const results = this.ctx.storage.transactionSync(() =>
        (Array.isArray(body) ? body : [body]).map((one) => this.run(one)),
      );
      return Response.json(Array.isArray(body) ? results : results[0]);
    } catch (error) {
      return Response.json({ success: false, error: error instanceof Error ? error.message : String(error) });
    }
  }

  private run({ sql: text, params = [] }: Query) {
    const { sql } = this.ctx.storage;
    const before = this.counters();
    // Bytes travel as arrays of numbers, both ways.
    const cursor = sql.exec(
      text,
      ...params.map((value) => (Array.isArray(value) ? new Uint8Array(value).buffer : value)),
    );
    const rows = [...cursor.raw()].map((row) =>
      row.map((v) => (v instanceof ArrayBuffer ? [...new Uint8Array(v)] : v)),
    );
    const after = this.counters();
    const changes = after.total - before.total;
    const meta = { served_by: 'workerd', duration: 0, changes, last_row_id: after.last, changed_db: changes > 0 };
    const read = { size_after: sql.databaseSize, rows_read: cursor.rowsRead, rows_written: cursor.rowsWritten };
    return { success: true, results: { columns: cursor.columnNames, rows }, meta: { ...meta, ...read } };
  }

  private counters() {
    const query = 'SELECT total_changes() AS total, last_insert_rowid() AS last';
    return this.ctx.storage.sql.exec<{ total: number; last: number }>(query).one();
  }
}

export default {
  fetch: (request, env) => env.STORE.getByName('d1').fetch(request),
} satisfies ExportedHandler<D1Env>;
