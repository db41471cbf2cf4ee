import { CommandError } from '../../../command-error.ts';
import { unknownMigrations } from '../data/schema-version.ts';
import { WRITER_LOCK } from './postgres-d1.ts';
import type { Connection, PostgresPool } from './postgres-pool.ts';

/** Maximum time of one migration, which may rewrite a large table. */
export const MIGRATION_TIMEOUT_MS = 600_000;

/** Names of the applied migrations; empty if the database has no tables yet. */
export async function migrationsApplied(connection: Connection): Promise<string[]> {
  const exists = await connection.query("SELECT to_regclass('gateway_migrations') IS NOT NULL");
  if (exists.rows[0]?.[0] !== 1) return [];
  const { rows } = await connection.query('SELECT name FROM gateway_migrations ORDER BY name');
  return rows.map(([name]) => String(name));
}

/**
 * Applies missing migrations, all of them or none.
 * @throws CommandError if a newer program has changed the database
 */
export async function migratePostgres(
  pool: PostgresPool,
  migrations: readonly { name: string; statements: readonly string[] }[],
): Promise<void> {
  await pool.withConnection(async (connection) => {
    await connection.query(
      `BEGIN; SET LOCAL statement_timeout = ${MIGRATION_TIMEOUT_MS}; SELECT pg_advisory_xact_lock(${WRITER_LOCK})`,
    );
    await connection.query(
      'CREATE TABLE IF NOT EXISTS gateway_migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())',
    );
    const applied = await migrationsApplied(connection);
    const newer = unknownMigrations(
      migrations.map(({ name }) => name),
      applied,
    );
    if (newer.length > 0)
      throw new CommandError(
        `The database was changed by a newer otela-gateway: this version does not know ${newer.join(', ')}. ` +
          'Run that version or a later one. Nothing was changed.',
      );
    for (const { name, statements } of migrations.filter((one) => !applied.includes(one.name))) {
      for (const statement of statements) await connection.query(statement);
      await connection.query('INSERT INTO gateway_migrations (name) VALUES ($1)', [name]);
    }
    await connection.query('COMMIT');
  });
}
