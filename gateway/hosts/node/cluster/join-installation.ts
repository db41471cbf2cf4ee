/**
 * Binds a data directory to a database that several processes share, and gives the directory a number. The number is
 * part of names that a process gives, such as stream numbers, so no two running processes may have the same one.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../../../../node/bounded-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { CommandError } from '../../../command-error.ts';
import {
  BINDING_FILE,
  BINDING_MAX_BYTES,
  newInstallation,
  refuseAccountsFile,
  refuseMoved,
  SHARED,
  writeBinding,
} from '../postgresql/database-binding.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';

/** Stream numbers begin at the process's number times 2^32, and must stay below 2^50. */
const PROCESS_MAX = 2 ** 18;

const bindingSchema = z.object({ installation: z.string(), process: z.number().int().positive() });

/** @returns the number of this data directory. @throws CommandError if it cannot use the database */
export async function joinInstallation(connection: Connection, data: string): Promise<number> {
  const file = join(data, BINDING_FILE);
  const bound = existsSync(file) ? tryParseJson(readBoundedFile(file, BINDING_MAX_BYTES)) : undefined;
  const { id, holder, place } = await readInstallation(connection);
  refuseMoved(holder, place);
  if (holder !== SHARED)
    throw new CommandError(
      `The database belongs to the data directory ${place}, which has the objects of one process. ` +
        'Several processes need a new database, or the directory is moved with --cluster-key: otela-gateway migrate.',
    );
  if (bound === undefined) {
    refuseAccountsFile(data, undefined);
    const process = await newProcessNumber(connection);
    writeBinding(data, { installation: id, process });
    return process;
  }
  const binding = bindingSchema.safeParse(bound);
  if (!binding.success || binding.data.installation !== id)
    throw new CommandError(`${data} belongs to another database (${file}). Give --data another directory.`);
  refuseAccountsFile(data, id);
  return binding.data.process;
}

/** Draws a number for a data directory. @throws CommandError */
export async function newProcessNumber(connection: Connection): Promise<number> {
  const [row] = (await connection.query("SELECT nextval('gateway_process_number')")).rows;
  const process = Number(row?.[0]);
  if (process < PROCESS_MAX) return process;
  throw new CommandError(`more than ${PROCESS_MAX} data directories used this database`);
}

async function readInstallation(connection: Connection): Promise<{ id: string; holder: string; place: string }> {
  const id = newInstallation();
  const insert = 'INSERT INTO gateway_installation (id, place, holder) VALUES ($1, $2, $2) ON CONFLICT DO NOTHING';
  await connection.query(insert, [id, SHARED]);
  const [row] = (await connection.query('SELECT id, holder, place FROM gateway_installation')).rows;
  return { id: String(row?.[0]), holder: String(row?.[1]), place: String(row?.[2]) };
}
