/** Uses D1 in every way that the gateway may. The result is D1_EXPECTED if a runtime keeps D1's interface. */
import { eq } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/d1';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { errorText } from '../../../shared/text/error-text.ts';

export async function d1Contract(db: D1Database) {
  const exec = await db.exec(
    "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, data BLOB)\nINSERT INTO t (id, name) VALUES (1, 'one')",
  );
  const insert = db.prepare('INSERT INTO t (id, name, data) VALUES (?, ?, ?)');
  const run = await insert.bind(7, 'ünï☃ \u0000"\'\\', null).run();
  const runUpdate = await db.prepare('UPDATE t SET data = NULL').run();
  const byId = db.prepare('SELECT * FROM t WHERE id = ?');
  const all = (await db.prepare('SELECT * FROM t ORDER BY id').all()).results;
  const values = 'SELECT ? AS yes, ? AS big, ? AS real, ? AS none';
  const batchInsert = [insert.bind(8, 'eight', null), db.prepare('SELECT count(*) AS n FROM t')];
  const [inserted, counted] = await db.batch([insert.bind(9, 'nine', null), db.prepare('SELECT count(*) AS n FROM t')]);
  const orm = drizzle(db);
  const row = { id: 'k', hash: 'h', prefix: 'p', name: 'n', role: 'consumer' as const, createdAt: 0 };
  return {
    exec: exec.count,
    run: outcome(run),
    runUpdate: outcome(runUpdate),
    all,
    first: await byId.bind(1).first(),
    firstColumn: await byId.bind(1).first('name'),
    firstNothing: await byId.bind(404).first(),
    raw: await db.prepare('SELECT id, name FROM t WHERE id < 8 ORDER BY id').raw(),
    rawNames: await db.prepare('SELECT 1 AS a, 2 AS a').raw({ columnNames: true }),
    blob: await db
      .prepare('SELECT ? AS b')
      .bind(new Uint8Array([0, 1, 127, 128, 255]))
      .first('b'),
    blobEmpty: await db.prepare('SELECT ? AS b').bind(new Uint8Array([])).first('b'),
    values: await db.prepare(values).bind(true, Number.MAX_SAFE_INTEGER, -0.5, null).first(),
    batch: [inserted?.meta.changes, counted?.results],
    // The first statement of this batch would succeed; the second fails, which rolls both back.
    batchError: await message(db.batch([...batchInsert, insert.bind(1, 'again', null)])),
    afterRollback: await db.prepare('SELECT count(*) AS n FROM t').first('n'),
    missingTable: await message(db.prepare('SELECT * FROM nowhere').all()),
    syntax: await message(db.prepare('SELEKT 1').all()),
    begin: (await message(db.prepare('BEGIN TRANSACTION').run())) === 'no error' ? 'accepted' : 'refused',
    session: await db.withSession('first-primary').prepare('SELECT count(*) AS n FROM t').first('n'),
    drizzle: await orm.batch([
      orm.insert(apiKeys).values(row).returning({ id: apiKeys.id }),
      orm.select().from(apiKeys).where(eq(apiKeys.id, 'nobody')),
    ]),
  };
}

function outcome({ success, meta: { changes, last_row_id } }: D1Result) {
  return { success, changes, last_row_id };
}

function message(query: Promise<unknown>): Promise<string> {
  return query.then(
    () => 'no error',
    (error: unknown) => errorText(error),
  );
}
