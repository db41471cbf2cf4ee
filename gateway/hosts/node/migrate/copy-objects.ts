/** Copies objects that processes share from the files of a data directory to PostgreSQL, and back. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../../../command-error.ts';
import { slotOf } from '../cluster/object-slots.ts';
import { decodeWrites, RecordedDatabase } from '../cluster/recorded-database.ts';
import { readStoredObject } from '../cluster/turn-log.ts';
import { Alarms } from '../object-alarms.ts';
import { fileName, objectName } from '../object-file-name.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import { Database } from '../sqlite.ts';
import { USAGE_CLASS } from './copy-usage.ts';

/** Classes of objects that stay in the data directory of a process. */
const LOCAL_CLASSES: ReadonlySet<string> = new Set(['TUNNEL', 'OBSERVE', 'CIRCUIT']);
/** The driver sends an image as one value, and PostgreSQL's text form of it has twice as many bytes. */
const IMAGE_MAX_BYTES = 192 * 1024 * 1024;
/** Number of the image in the object's log. */
const FIRST_SEQ = 1;

interface StoredFile {
  key: string;
  path: string;
}

/** Classes with a directory in `objects` that processes share. */
export function sharedClasses(objects: string): string[] {
  if (!existsSync(objects)) return [];
  const directories = readdirSync(objects, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return directories.map(({ name }) => name).filter((name) => !LOCAL_CLASSES.has(name));
}

/** Usage records become rows: see copy-usage.ts. @throws CommandError if an object's name is unknown */
function filesOf(objects: string, alarms: ReadonlyMap<string, number>): StoredFile[] {
  const namesByFile = new Map(
    [...alarms.keys()].map((key) => {
      const [className, name] = splitKey(key);
      return [`${className}/${fileName(name)}`, name];
    }),
  );
  const moved = sharedClasses(objects).filter((className) => className !== USAGE_CLASS);
  return moved.flatMap((className) =>
    readdirSync(join(objects, className))
      .filter((file) => file.endsWith('.sqlite'))
      .map((file) => {
        const name = objectName(file) ?? namesByFile.get(`${className}/${file}`);
        const path = join(objects, className, file);
        if (name === undefined) throw new CommandError(`${path}: the object's name is too long to be moved.`);
        return { key: `${className}/${name}`, path };
      }),
  );
}

function splitKey(key: string): [className: string, name: string] {
  const at = key.indexOf('/');
  return [key.slice(0, at), key.slice(at + 1)];
}

/** Alarms of shared objects by the object's key. */
export function sharedAlarms(objects: string): Map<string, number> {
  const file = join(objects, 'alarms.sqlite');
  if (!existsSync(file)) return new Map();
  const database = new Database(file);
  try {
    const rows = database.rows('SELECT class, name, at FROM alarms', []);
    const shared = rows.filter((row) => !LOCAL_CLASSES.has(String(row.class)));
    return new Map(shared.map((row) => [`${row.class}/${row.name}`, Number(row.at)]));
  } finally {
    database.close();
  }
}

/** Deletes the alarms that `sharedAlarms` returns. */
export function forgetSharedAlarms(objects: string): void {
  const file = join(objects, 'alarms.sqlite');
  if (!existsSync(file)) return;
  const database = new Database(file);
  const local = [...LOCAL_CLASSES];
  database.rows(`DELETE FROM alarms WHERE class NOT IN (${local.map(() => '?').join(', ')})`, local);
  database.close();
}

/** @returns the number of copied objects. @throws CommandError if an object cannot be copied, or its copy differs */
export async function copyObjectsToPostgres(objects: string, scratch: string, connection: Connection): Promise<number> {
  const alarms = sharedAlarms(objects);
  const files = filesOf(objects, alarms);
  for (const { key, path } of files) {
    const image = imageOf(path, scratch);
    const insert = 'INSERT INTO object_images (object, seq, image) VALUES ($1, $2, $3)';
    await connection.query(insert, [key, FIRST_SEQ, image]);
    const hash = "SELECT encode(sha256(image), 'hex') FROM object_images WHERE object = $1";
    const [row] = (await connection.query(hash, [key])).rows;
    if (row?.[0] !== createHash('sha256').update(image).digest('hex'))
      throw new CommandError(`The copy of ${key} differs from the original. Nothing was changed.`);
  }
  const insertAlarm = 'INSERT INTO object_alarms (object, slot, at) VALUES ($1, $2, $3)';
  for (const [key, at] of alarms)
    if (splitKey(key)[0] !== USAGE_CLASS) await connection.query(insertAlarm, [key, slotOf(key), at]);
  return files.length;
}

/** A complete copy of a database, without a log beside it. @throws CommandError */
function imageOf(path: string, scratch: string): Buffer {
  const { size } = statSync(path);
  if (size > IMAGE_MAX_BYTES)
    throw new CommandError(`${path} has ${size} bytes, but an object in PostgreSQL has at most ${IMAGE_MAX_BYTES}.`);
  const copy = join(scratch, 'image.sqlite');
  rmSync(copy, { force: true });
  const database = new Database(path);
  try {
    database.rows('VACUUM INTO ?', [copy]);
    return readFileSync(copy);
  } finally {
    database.close();
    rmSync(copy, { force: true });
  }
}

/** Writes each stored object to a file in `objects`. @returns the number of objects */
export async function copyObjectsToDirectory(connection: Connection, objects: string): Promise<number> {
  const query = 'SELECT object FROM object_images UNION SELECT object FROM object_log ORDER BY 1';
  const keys = (await connection.query(query)).rows.map(([object]) => String(object));
  for (const key of keys) {
    const [className, name] = splitKey(key);
    mkdirSync(join(objects, className), { recursive: true, mode: 0o700 });
    const path = join(objects, className, fileName(name));
    const { image, rows } = await readStoredObject(connection, key);
    if (image !== undefined) writeFileSync(path, image, { mode: 0o600 });
    const database = new RecordedDatabase(path);
    try {
      for (const writes of rows) database.repeat(decodeWrites(writes));
      const [check] = existsSync(path) ? database.rows('PRAGMA quick_check(1)', []) : [{ quick_check: 'ok' }];
      if (check?.quick_check !== 'ok') throw new CommandError(`The copy of ${key} is damaged: ${check?.quick_check}.`);
    } finally {
      database.close();
    }
  }
  return keys.length;
}

export async function storedAlarms(connection: Connection): Promise<Map<string, number>> {
  const { rows } = await connection.query('SELECT object, at FROM object_alarms');
  return new Map(rows.map(([object, at]) => [String(object), Number(at)]));
}

/** Adds alarms to those of a data directory that no gateway uses. */
export function addAlarms(objects: string, added: ReadonlyMap<string, number>): void {
  const alarms = new Alarms(new Database(join(objects, 'alarms.sqlite')), async () => {});
  for (const [key, at] of added) alarms.put(...splitKey(key), at);
  alarms.close();
}
