/** Checks of a PostgreSQL database with the accounts. They change nothing. */
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../../shared/terminal/check-result.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { migrationsApplied } from '../postgresql/migrate-postgres.ts';
import { requireServer, shownUrl } from '../postgresql/postgres-accounts.ts';
import { PostgresPool } from '../postgresql/postgres-pool.ts';

/** Above this time for a query, changes of accounts and first uses of keys become slow. */
const SLOW_MS = 20;
/** Difference between the clocks of this machine and the server at which the expiry of keys is noticeably wrong. */
const CLOCK_MAX_MS = 2_000;
const QUERIES = 5;
/** Connections that a process opens at most: control, objects, accounts, reports. */
const CONNECTIONS_PER_PROCESS = 14;

export async function checkDatabase(url: string, now: () => number): Promise<CheckResult[]> {
  const what = 'database';
  const pool = new PostgresPool({ url, name: 'otela-gateway doctor', most: 1 });
  try {
    await requireServer(pool);
    return [
      await checkRights(pool, what, shownUrl(url)),
      await checkPooler(pool, what),
      await checkConnections(pool, what),
      await checkDurability(pool, what),
      await checkLatency(pool, what),
      await checkClock(pool, now),
    ];
  } catch (error) {
    const help = 'Start PostgreSQL, or correct --database and PGPASSWORD.';
    return [checkFailed(what, `${shownUrl(url)}: ${errorText(error)}`, help)];
  } finally {
    await pool.close();
  }
}

async function checkRights(pool: PostgresPool, what: string, shown: string): Promise<CheckResult> {
  const query = `SELECT has_schema_privilege(current_schema(), 'CREATE'), current_user,
    split_part(current_setting('server_version'), ' ', 1)`;
  const [row = []] = (await pool.query(query)).rows;
  const [mayCreate, role, version] = row;
  const applied = await migrationsApplied(pool);
  if (mayCreate !== 1)
    return checkFailed(
      what,
      `the role ${role} may not create tables in ${shown}`,
      `As its owner: GRANT CREATE ON SCHEMA public TO ${role};`,
    );
  return checkPassed(what, `${shown}: PostgreSQL ${version}; ${applied.at(-1) ?? 'no tables yet'}`);
}

/**
 * Finds out whether a pooler is in between: two transactions on one connection then may have different servers. Session
 * pooling looks like no pooler, and works like it.
 */
async function checkPooler(pool: PostgresPool, what: string): Promise<CheckResult> {
  const servers = new Set<unknown>();
  await pool.withConnection(async (connection) => {
    for (let n = 0; n < QUERIES; n++) servers.add((await connection.query('SELECT pg_backend_pid()')).rows[0]?.[0]);
    // A pooler that gives each statement another server breaks transactions.
    await connection.query('BEGIN');
    const [first, second] = [await connection.query(TRANSACTION), await connection.query(TRANSACTION)];
    await connection.query('COMMIT');
    if (first.rows[0]?.[0] !== second.rows[0]?.[0]) throw new Error('a pooler splits transactions');
  });
  const [version] = (await pool.query('SHOW server_version')).rows;
  const found = servers.size > 1 ? 'a pooler in transaction mode is in between' : 'no pooler in transaction mode';
  return checkPassed(what, `${found}; server ${version?.[0]}`);
}

const TRANSACTION = 'SELECT pg_current_xact_id()';

async function checkConnections(pool: PostgresPool, what: string): Promise<CheckResult> {
  const query = `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`;
  const [row = []] = (await pool.query(query)).rows;
  const [most, used] = row.map(Number);
  const free = (most ?? 0) - (used ?? 0);
  const text = `${used} of ${most} connections are in use; a gateway process opens at most ${CONNECTIONS_PER_PROCESS}`;
  const fix = 'Raise max_connections, or use a pooler in transaction mode.';
  return free < CONNECTIONS_PER_PROCESS ? checkWarning(what, text, fix) : checkPassed(what, text);
}

/** Changes that a crash or a failover of PostgreSQL may lose. */
async function checkDurability(pool: PostgresPool, what: string): Promise<CheckResult> {
  const query = `SELECT current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), pg_is_in_recovery()`;
  const [row = []] = (await pool.query(query)).rows;
  const [fsync, commit, standbys, isStandby] = row.map(String);
  if (isStandby === '1')
    return checkFailed(what, 'the server is a standby, which cannot be written', 'Give the address of the primary.');
  if (fsync !== 'on')
    return checkWarning(what, 'fsync is off: a crash of the server can damage the database', 'Set fsync = on.');
  if (commit === 'off')
    return checkWarning(what, 'synchronous_commit is off: a crash loses changes', 'Set synchronous_commit = on.');
  if (standbys === '')
    return checkPassed(what, 'no synchronous standby: a failover to another server may lose the last changes');
  return checkPassed(what, `a synchronous standby has each change (${standbys})`);
}

async function checkLatency(pool: PostgresPool, what: string): Promise<CheckResult> {
  const from = performance.now();
  for (let n = 0; n < QUERIES; n++) await pool.query('SELECT 1');
  const ms = (performance.now() - from) / QUERIES;
  const text = `a query takes ${ms.toFixed(1)} ms`;
  return ms < SLOW_MS ? checkPassed(what, text) : checkWarning(what, text, 'Run PostgreSQL in the same network.');
}

async function checkClock(pool: PostgresPool, now: () => number): Promise<CheckResult> {
  const before = now();
  const query = 'SELECT cast(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)';
  const [row = []] = (await pool.query(query)).rows;
  const off = Number(row[0]) - (before + now()) / 2;
  const text = `differs by ${Math.round(Math.abs(off))} ms from the clock of PostgreSQL`;
  return Math.abs(off) < CLOCK_MAX_MS
    ? checkPassed('clock', text)
    : checkWarning('clock', text, 'Set both clocks (NTP): otherwise keys expire at the wrong time.');
}
