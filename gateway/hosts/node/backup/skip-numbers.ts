/** Prevents that a restored gateway reuses a number that another program has seen already. */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deserialize, serialize } from 'node:v8';
import { CommandError } from '../../../command.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { FOLLOWING_FILE } from '../following/role.ts';

/** More requests than one node serves between a backup and the loss: 100 a second for two days. */
const SKIPPED = 2 ** 24;

/**
 * Skips numbers, because a backup knows only those that were used before it.
 *
 * - Streams (gateway/tunnel/stream-ids.ts): sessions outlive their gateway, and an agent's late report on a stream from
 * after the backup would be taken for a report on the new stream.
 * - Waiting records (gateway/usage/record.ts, following/record-queue.ts): limits, and the primary that this gateway
 * follows, identify by number what they have, and would drop as many new records as they received since the backup.
 * - Changes of accounts: followers that had more than the backup copy everything again, since a revocation might have
 * one of their numbers.
 *
 * @param data a data directory that no gateway uses
 */
export function skipNumbers(data: string): void {
  const tunnels = join(data, 'objects', 'TUNNEL');
  const names = existsSync(tunnels) ? readdirSync(tunnels) : [];
  for (const name of names.filter((one) => one.endsWith('.sqlite')))
    change(join(tunnels, name), (database) => {
      skipStreams(database);
      skipSequence(database, 'pending');
    });
  change(join(data, FOLLOWING_FILE), (database) => skipSequence(database, 'hand_over'));
  change(join(data, ACCOUNTS_FILE), renameFeed);
}

function change(file: string, work: (database: DatabaseSync) => void): void {
  if (!existsSync(file)) return;
  const database = new DatabaseSync(file);
  try {
    work(database);
  } finally {
    database.close();
  }
}

function has(database: DatabaseSync, table: string): boolean {
  return database.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').get(table) !== undefined;
}

function skipStreams(database: DatabaseSync): void {
  if (!has(database, '_keys')) return;
  const row = database.prepare("SELECT value FROM _keys WHERE key = 'streams'").get();
  if (row === undefined) return;
  const before: unknown = row.value instanceof Uint8Array ? deserialize(row.value) : undefined;
  if (typeof before !== 'number')
    throw new CommandError('the stream numbers of a node are in a form that is not known');
  database.prepare("UPDATE _keys SET value = ? WHERE key = 'streams'").run(serialize(before + SKIPPED));
}

/** For a table numbered by AUTOINCREMENT: SQLite has a row here as soon as the table had one. */
function skipSequence(database: DatabaseSync, table: string): void {
  if (!has(database, table)) return;
  const changed = database.prepare('UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?').run(SKIPPED, table);
  if (changed.changes === 0)
    database.prepare('INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)').run(table, SKIPPED);
}

/** Numbers of another feed have no meaning here (following/change-feed.ts). */
function renameFeed(database: DatabaseSync): void {
  if (!has(database, 'follow_feed')) return;
  const id = randomBytes(12).toString('base64url');
  database.prepare("UPDATE follow_feed SET value = ? WHERE name = 'id'").run(id);
}
