/**
 * Advances counters in a restored data directory, so that the gateway does not reuse numbers that other programs have
 * seen.
 */
import { basename, join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { deserialize, serialize } from 'node:v8';
import { CommandError } from '../../../command-error.ts';
import { changeDatabase, objectFiles } from '../data/change-database.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { objectName } from '../object-file-name.ts';

/**
 * How many numbers are skipped: more than the requests of a node between a backup and the loss of the data (100 a
 * second for two days).
 */
const SKIPPED = 2 ** 24;

/**
 * Skips numbers, because a backup contains only the numbers that were used before it.
 * - Streams (gateway/tunnel/stream-ids.ts): sessions outlive their gateway. An agent's late report on a stream that was
 * opened after the backup would be mistaken for a report on a new stream.
 * - Waiting records (gateway/usage/outbox/usage-record-table.ts, gateway/batch/batch-usage-outbox.ts): the limits
 * objects store the number up to which they received records. They would drop new records with numbers that were
 * already used after the backup.
 * - Totals (gateway/usage/hour/usage-hour-object.ts): the accounts are copied after the objects. So they may already
 * contain totals that still wait in the copy of an hour's object. Such waiting totals are deleted.
 * @param data a data directory that no gateway uses
 */
export function advanceCounters(data: string): void {
  for (const file of objectFiles(data, 'TUNNEL'))
    changeDatabase(file, (database) => {
      skipStreams(database);
      skipSequence(database, 'pending');
    });
  for (const file of objectFiles(data, 'BATCH')) changeDatabase(file, (database) => skipSequence(database, 'bill'));
  changeDatabase(join(data, ACCOUNTS_FILE), (accounts) => {
    for (const file of objectFiles(data, 'USAGE')) changeDatabase(file, (hour) => dropTotals(hour, accounts, file));
  });
}

function has(database: DatabaseSync, table: string): boolean {
  return database.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').get(table) !== undefined;
}

function skipStreams(database: DatabaseSync): void {
  const before = numberOf(database, 'streams');
  if (before !== undefined) setNumber(database, 'streams', before + SKIPPED);
}

/**
 * Deletes waiting totals that the accounts already contain. They would count twice, because they would be sent again
 * under another number.
 */
function dropTotals(hour: DatabaseSync, accounts: DatabaseSync, file: string): void {
  const shard = objectName(basename(file));
  if (shard === undefined || !has(hour, 'totals') || !has(hour, '_keys') || !has(accounts, 'usage_batches')) return;
  const newest = accounts.prepare('SELECT max(batch) AS batch FROM usage_batches WHERE shard = ?').get(shard)?.batch;
  if (typeof newest !== 'number' || newest <= (numberOf(hour, 'batch') ?? 0)) return;
  hour.exec('DELETE FROM totals; DELETE FROM sending');
  setNumber(hour, 'batch', newest);
}

/** Reads a number that an object stored as key-value pair (object-storage.ts). @throws CommandError */
function numberOf(database: DatabaseSync, key: string): number | undefined {
  if (!has(database, '_keys')) return undefined;
  const row = database.prepare('SELECT value FROM _keys WHERE key = ?').get(key);
  if (row === undefined) return undefined;
  const value: unknown = row.value instanceof Uint8Array ? deserialize(row.value) : undefined;
  if (typeof value === 'number') return value;
  throw new CommandError(`the number "${key}" of an object has an unknown format`);
}

function setNumber(database: DatabaseSync, key: string, value: number): void {
  database.prepare('INSERT OR REPLACE INTO _keys (key, value) VALUES (?, ?)').run(key, serialize(value));
}

/**
 * Skips numbers of a table with AUTOINCREMENT. SQLite stores the table's last number when the first row is inserted.
 */
function skipSequence(database: DatabaseSync, table: string): void {
  if (!has(database, table)) return;
  const changed = database.prepare('UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?').run(SKIPPED, table);
  if (changed.changes === 0)
    database.prepare('INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)').run(table, SKIPPED);
}
