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

export async function checkDatabase(url: string, now: () => number): Promise<CheckResult[]> {
  const what = 'database';
  const pool = new PostgresPool({ url, name: 'otela-gateway doctor', most: 1 });
  try {
    await requireServer(pool);
    return [await checkRights(pool, what, shownUrl(url)), await checkLatency(pool, what), await checkClock(pool, now)];
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
