/**
 * Binds a data directory to a database that several processes share, and gives the directory a number. The number is
 * part of names that a process gives, such as stream numbers, so no two running processes may have the same one.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../../../../node/bounded-file.ts';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { CommandError } from '../../../command-error.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { BINDING_FILE, BINDING_MAX_BYTES, SHARED } from '../postgresql/database-binding.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';

const INSTALLATION_BYTES = 12;
/** Stream numbers begin at the process's number times 2^32, and must stay below 2^50. */
const PROCESS_MAX = 2 ** 18;

const bindingSchema = z.object({ installation: z.string(), process: z.number().int().positive() });

/** @returns the number of this data directory. @throws CommandError if it cannot use the database */
export async function joinInstallation(connection: Connection, data: string): Promise<number> {
  const file = join(data, BINDING_FILE);
  const bound = existsSync(file) ? tryParseJson(readBoundedFile(file, BINDING_MAX_BYTES)) : undefined;
  const { id, isShared, place } = await readInstallation(connection);
  if (!isShared)
    throw new CommandError(
      `The database belongs to the data directory ${place}, which has the objects of one process. ` +
        'Several processes need a new database.',
    );
  if (bound === undefined) {
    if (existsSync(join(data, ACCOUNTS_FILE)))
      throw new CommandError(
        `${data} has accounts in ${ACCOUNTS_FILE}, which cannot be moved to PostgreSQL yet. Give --data another directory.`,
      );
    const [row] = (await connection.query("SELECT nextval('gateway_process_number')")).rows;
    const process = Number(row?.[0]);
    if (!(process < PROCESS_MAX))
      throw new CommandError(`more than ${PROCESS_MAX} data directories used this database`);
    writePrivateFile(file, `${JSON.stringify({ installation: id, process })}\n`);
    return process;
  }
  const binding = bindingSchema.safeParse(bound);
  if (!binding.success || binding.data.installation !== id)
    throw new CommandError(`${data} belongs to another database (${file}). Give --data another directory.`);
  return binding.data.process;
}

async function readInstallation(connection: Connection): Promise<{ id: string; isShared: boolean; place: string }> {
  const id = randomBytes(INSTALLATION_BYTES).toString('base64url');
  const insert = 'INSERT INTO gateway_installation (id, place, holder) VALUES ($1, $2, $2) ON CONFLICT DO NOTHING';
  await connection.query(insert, [id, SHARED]);
  const [row] = (await connection.query('SELECT id, holder, place FROM gateway_installation')).rows;
  return { id: String(row?.[0]), isShared: row?.[1] === SHARED, place: String(row?.[2]) };
}
