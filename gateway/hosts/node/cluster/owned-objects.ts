import { writeFileSync } from 'node:fs';
import type { StorageHealth } from '../../../platform/storage/storage-health.ts';
import type { OwnedObject, OwnedObjects } from '../object-host.ts';
import type { PostgresPool } from '../postgresql/postgres-pool.ts';
import { LogGate } from './log-gate.ts';
import { ObjectLog } from './object-log.ts';
import { slotOf } from './object-slots.ts';
import { decodeWrites, encodeWrites, RecordedDatabase } from './recorded-database.ts';
import { readObject, type TurnLog } from './turn-log.ts';

/** How often an object is read again, because another process stored something meanwhile. */
const LOADS_MAX = 5;

interface LoggedObjectsOptions {
  pool: PostgresPool;
  log: TurnLog;
  /** Incarnation of this process. */
  me: string;
  health: StorageHealth;
  report(line: string): void;
}

/** Opens owned objects: loads them from PostgreSQL into a database in this process's scratch directory. */
export class LoggedObjects implements OwnedObjects {
  readonly #options: LoggedObjectsOptions;
  #loads = 0;

  constructor(options: LoggedObjectsOptions) {
    this.#options = options;
  }

  get health(): StorageHealth {
    return this.#options.health;
  }

  async open(key: string, path: string): Promise<OwnedObject> {
    const { pool, log, me, health, report } = this.#options;
    const slot = slotOf(key);
    const database = new RecordedDatabase(path);
    const owner = `${me}/${++this.#loads}`;
    for (let load = 0; load < LOADS_MAX; load++) {
      const stored = await readObject(pool, key);
      const { image, rows, seq } = stored;
      database.clear();
      if (image !== undefined) writeFileSync(path, image, { mode: 0o600 });
      for (const row of rows) database.repeat(decodeWrites(row));
      // After this row, a former owner can store nothing more. A new object needs none: the first row decides.
      const claim = { object: key, slot, seq: seq + 1, owner, writes: encodeWrites([]), alarm: undefined };
      if (seq > 0 && !(await log.storeOne(claim))) continue;
      const at = seq > 0 ? seq + 1 : 0;
      const object = new ObjectLog({
        log,
        pool,
        object: key,
        slot,
        owner,
        database,
        seq: at,
        rows: rows.length,
        report,
      });
      return {
        database,
        gate: (onFailure) => new LogGate({ database, log: object, health, onFailure }),
        setAlarm: (time) => object.setAlarm(time),
      };
    }
    throw new Error(`${key}: other processes keep storing rows`);
  }
}
