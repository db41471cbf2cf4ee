/**
 * Binds a database of accounts to one data directory. The objects are in files of that directory and refer to the
 * accounts, so a second gateway process on the same database, or another directory, would give wrong answers.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../../../../node/bounded-file.ts';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { CommandError } from '../../../command-error.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import type { Connection } from './postgres-pool.ts';

/** File of the data directory that names its database. */
export const BINDING_FILE = 'database.json';
export const BINDING_MAX_BYTES = 4_096;
/** Holder and place of a database that several processes share (`--cluster-key`). */
export const SHARED = 'several processes';
/** Holder of a database after its data was moved to a directory, which is then its place. */
export const MOVED = 'moved to a directory';
const bindingSchema = z.object({ installation: z.string() });

/** Interval of the holder's heartbeats. */
const BEAT_MS = 2_000;
/** If the number of heartbeats has not changed for this time, the holder has ended. */
const SILENT_MS = 6_000;
const INSTALLATION_BYTES = 12;

/**
 * Id of the database to which a data directory belongs; undefined: none. @throws CommandError if the file is damaged
 */
export function boundDatabase(data: string): string | undefined {
  const file = join(data, BINDING_FILE);
  if (!existsSync(file)) return undefined;
  const binding = bindingSchema.safeParse(tryParseJson(readBoundedFile(file, BINDING_MAX_BYTES)));
  if (!binding.success) throw new CommandError(`${file} is damaged. Restore it from a backup of ${data}.`);
  return binding.data.installation;
}

/** @throws CommandError if the directory has accounts in a file, so that it must be moved to PostgreSQL first */
export function refuseAccountsFile(data: string, bound: string | undefined): void {
  if (!existsSync(join(data, ACCOUNTS_FILE))) return;
  const reason = bound === undefined ? 'has its accounts in a file' : 'was not moved completely';
  throw new CommandError(`${data} ${reason}. Move it: otela-gateway migrate --data ${data} --to postgres://…`);
}

/** @throws CommandError if the database's data is in a directory now */
export function refuseMoved(holder: string | undefined, place: string | undefined): void {
  if (holder === MOVED) throw new CommandError(`The data of this database was moved to the directory ${place}.`);
}

/** Writes the id of the database to which a data directory belongs, and the directory's number if it has one. */
export function writeBinding(data: string, binding: { installation: string; process?: number }): void {
  writePrivateFile(join(data, BINDING_FILE), `${JSON.stringify(binding)}\n`);
}

/** Host and path of a data directory, for messages. */
export function placeOf(data: string): string {
  return `${hostname()}:${data}`;
}

export function newInstallation(): string {
  return randomBytes(INSTALLATION_BYTES).toString('base64url');
}

/** @throws CommandError if the directory's accounts are in PostgreSQL */
export function refuseBound(data: string, instead: string): void {
  if (boundDatabase(data) !== undefined)
    throw new CommandError(`The accounts of ${data} are in PostgreSQL (${join(data, BINDING_FILE)}). ${instead}`);
}

interface Holder {
  id: string;
  place: string;
  holder: string;
  beat: number;
  left: boolean;
}

interface BindingOptions {
  /** A connection that nothing else uses, so that a slow query delays no heartbeat. */
  connection: Connection;
  /** The data directory; this process has its lock. */
  data: string;
  pause(ms: number): Promise<unknown>;
  /** Called once if another process has taken the database. This process must then end. */
  onLost(place: string): void;
}

/** This process's hold of the database, from `take` to `release`. */
export class DatabaseBinding {
  readonly #options: BindingOptions;
  readonly #me = randomUUID();
  readonly #place: string;
  #timer: NodeJS.Timeout | undefined;
  #isBeating = false;

  constructor(options: BindingOptions) {
    this.#options = options;
    this.#place = placeOf(options.data);
  }

  /** @throws CommandError if the database belongs to another directory, or another process uses it */
  async take(): Promise<void> {
    const { connection, data } = this.#options;
    const bound = boundDatabase(data);
    const found = await this.#read();
    refuseAccountsFile(data, bound);
    refuseMoved(found?.holder, found?.place);
    if (found === undefined && bound !== undefined)
      throw new CommandError(`${data} belongs to another database: installation ${bound} is not in this one.`);
    if (found === undefined) {
      const id = newInstallation();
      const insert = 'INSERT INTO gateway_installation (id, place, holder) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING';
      const { count } = await connection.query(insert, [id, this.#place, this.#me]);
      if (count === 0) return this.take(); // another process was first
      this.#write(id);
    } else await this.#takeFrom(found, bound);
    this.#timer = setInterval(() => neverRejects(this.#beat()), BEAT_MS);
    this.#timer.unref();
  }

  async #takeFrom(found: Holder, bound: string | undefined): Promise<void> {
    if (found.holder === SHARED)
      throw new CommandError(
        'The database is shared by several processes. Give the key that they share: --cluster-key.',
      );
    const isHere = found.place === this.#place;
    // Without a binding file, an earlier start in this directory was interrupted before it wrote the file.
    if (bound !== found.id && (bound !== undefined || !isHere))
      throw new CommandError(
        `The database belongs to the data directory ${found.place} (installation ${found.id}). ` +
          'One gateway process can use a database: use that directory, or another database.',
      );
    // The lock of this directory proves that a former process here has ended. In another place it may still run.
    if (!isHere && !found.left) await this.#requireSilence(found);
    const take = `UPDATE gateway_installation SET holder = $1, place = $2, "left" = false, beat = beat + 1
      WHERE holder = $3 AND beat = $4`;
    const { count } = await this.#options.connection.query(take, [this.#me, this.#place, found.holder, found.beat]);
    if (count === 0) throw inUse((await this.#read())?.place ?? found.place);
    if (bound === undefined) this.#write(found.id);
  }

  async #requireSilence({ holder, beat, place }: Holder): Promise<void> {
    await this.#options.pause(SILENT_MS);
    const now = await this.#read();
    if (now?.holder !== holder || now.beat !== beat) throw inUse(now?.place ?? place);
  }

  async #read(): Promise<Holder | undefined> {
    const query = 'SELECT id, place, holder, beat, "left" FROM gateway_installation';
    const [row] = (await this.#options.connection.query(query)).rows;
    if (row === undefined) return undefined;
    const [id, place, holder, beat, left] = row;
    return { id: String(id), place: String(place), holder: String(holder), beat: Number(beat), left: left === 1 };
  }

  #write(installation: string): void {
    writeBinding(this.#options.data, { installation });
  }

  async #beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    try {
      const query = 'UPDATE gateway_installation SET beat = beat + 1 WHERE holder = $1';
      const { count } = await this.#options.connection.query(query, [this.#me]);
      if (count > 0) return;
      clearInterval(this.#timer);
      this.#options.onLost((await this.#read())?.place ?? 'another place');
    } catch {
      // PostgreSQL cannot be reached. No other process can take the database meanwhile without reaching it.
    } finally {
      this.#isBeating = false;
    }
  }

  /** Lets another process take the database immediately. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    const query = 'UPDATE gateway_installation SET "left" = true WHERE holder = $1';
    await this.#options.connection.query(query, [this.#me]).catch(() => {});
  }
}

function inUse(place: string): CommandError {
  return new CommandError(
    `The database is used by the gateway with the data directory ${place}. One gateway process can use a database.`,
  );
}
