/** What must not happen twice after a restore: a number that a node has seen already. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deserialize, serialize } from 'node:v8';
import { CommandError } from '../../../command.ts';

/** More requests than one node serves between a backup and the loss: 100 each second for two days. */
const SKIPPED = 2 ** 24;

/**
 * Sessions outlive their gateway, and a stream's name within one is its number (gateway/tunnel/stream-ids.ts). A backup knows only
 * those numbers that were given out before it: an agent's late report on one given out after it would be taken for the new one's.
 */
export function skipStreamNumbers(objects: string): void {
  const directory = join(objects, 'TUNNEL');
  const names = existsSync(directory) ? readdirSync(directory) : [];
  for (const name of names.filter((one) => one.endsWith('.sqlite'))) {
    const database = new DatabaseSync(join(directory, name));
    try {
      skip(database);
    } finally {
      database.close();
    }
  }
}

function skip(database: DatabaseSync): void {
  const [table] = database.prepare("SELECT 1 FROM sqlite_master WHERE name = '_keys'").all();
  if (table === undefined) return;
  const [row] = database.prepare("SELECT value FROM _keys WHERE key = 'streams'").all();
  if (row === undefined) return;
  const before: unknown = row.value instanceof Uint8Array ? deserialize(row.value) : undefined;
  if (typeof before !== 'number')
    throw new CommandError('the stream numbers of a node are in a form that is not known');
  database.prepare("UPDATE _keys SET value = ? WHERE key = 'streams'").run(serialize(before + SKIPPED));
}
