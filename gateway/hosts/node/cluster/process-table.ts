/**
 * The processes that share a database. A process counts up its `beat`; if the number stays the same for SILENT_MS by an
 * observer's monotonic clock, the observer declares the process's end. The lock of the row decides between this and a
 * late heartbeat, so no decision compares the clocks of two machines.
 */
import type { Connection } from '../postgresql/postgres-pool.ts';

export const BEAT_MS = 2_000;
/** An owner checks that it still owns its objects if it sent the last heartbeat that succeeded longer ago. */
export const OWNER_DEADLINE_MS = 5_000;
/** Longer than OWNER_DEADLINE_MS: an observer sees a heartbeat later than it was sent, so the owner stops first. */
const SILENT_MS = 6_000;

/** `left`: it ended normally. `proved`: its port or directory showed that it ended. `silent`: no heartbeats. */
export type ProcessEnding = 'left' | 'proved' | 'silent';

export interface ProcessRow {
  incarnation: string;
  process: number;
  address: string;
  /** URL at which agents reach it. Undefined: they only have an address that all processes share. */
  url: string | undefined;
  version: string;
  beat: number;
  /** False while it cannot write to its disk: then it should own no objects. */
  stores: boolean;
}

export type ProcessIdentity = Omit<ProcessRow, 'beat' | 'stores'>;

/** The number of heartbeats that an observer saw, and when it first saw this number. */
interface Observed {
  beat: number;
  since: number;
}

export class ProcessTable {
  readonly #connection: Connection;
  readonly #me: ProcessIdentity;
  readonly #now: () => number;
  readonly #stores: () => boolean;
  /** By incarnation; at most the processes of the last reading. */
  #observed = new Map<string, Observed>();

  /**
   * @param now a monotonic clock in milliseconds
   * @param stores false while this process cannot write to its disk
   */
  constructor(connection: Connection, me: ProcessIdentity, now: () => number, stores: () => boolean) {
    this.#connection = connection;
    this.#me = me;
    this.#now = now;
    this.#stores = stores;
  }

  /**
   * Adds this process. The lock of the data directory proves that earlier processes with this number have ended. Rows
   * of processes that have ended are deleted: a process without a row counts as ended.
   */
  async join(): Promise<void> {
    const { incarnation, process, address, url = null, version } = this.#me;
    await this.#connection.query('DELETE FROM gateway_processes WHERE ended IS NOT NULL OR process = $1', [process]);
    const insert = `INSERT INTO gateway_processes (incarnation, process, address, url, version, stores)
      VALUES ($1, $2, $3, $4, $5, $6)`;
    await this.#connection.query(insert, [incarnation, process, address, url, version, this.#stores()]);
  }

  /**
   * Returns PostgreSQL's time, in milliseconds since the epoch; undefined if another process has declared the end of
   * this one.
   */
  async beat(): Promise<number | undefined> {
    const query = `UPDATE gateway_processes SET beat = beat + 1, stores = $2 WHERE incarnation = $1 AND ended IS NULL
      RETURNING cast(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)`;
    const [row] = (await this.#connection.query(query, [this.#me.incarnation, this.#stores()])).rows;
    return row === undefined ? undefined : Number(row[0]);
  }

  /** Returns the running processes, and declares the end of those that are silent. */
  async running(): Promise<ProcessRow[]> {
    const query = `SELECT incarnation, process, address, url, version, beat, stores FROM gateway_processes
      WHERE ended IS NULL ORDER BY process`;
    const rows = (await this.#connection.query(query)).rows.map(processOf);
    const now = this.#now();
    const observed = new Map<string, Observed>();
    const running: ProcessRow[] = [];
    for (const row of rows) {
      const before = this.#observed.get(row.incarnation);
      const seen = before?.beat === row.beat ? before : { beat: row.beat, since: now };
      observed.set(row.incarnation, seen);
      const silent = row.incarnation !== this.#me.incarnation && now - seen.since >= SILENT_MS;
      if (!silent || !(await this.declare(row.incarnation, 'silent', row.beat))) running.push(row);
    }
    this.#observed = observed;
    return running;
  }

  /** @param beat the number of heartbeats at which the process was seen; if it has grown, nothing is changed */
  async declare(incarnation: string, ending: ProcessEnding, beat: number): Promise<boolean> {
    const query = 'UPDATE gateway_processes SET ended = $2 WHERE incarnation = $1 AND beat = $3 AND ended IS NULL';
    return (await this.#connection.query(query, [incarnation, ending, beat])).count === 1;
  }

  async leave(): Promise<void> {
    const query = "UPDATE gateway_processes SET ended = 'left' WHERE incarnation = $1 AND ended IS NULL";
    await this.#connection.query(query, [this.#me.incarnation]);
  }
}

function processOf([incarnation, process, address, url, version, beat, stores]: readonly unknown[]): ProcessRow {
  return {
    incarnation: String(incarnation),
    process: Number(process),
    address: String(address),
    url: url === null ? undefined : String(url),
    version: String(version),
    beat: Number(beat),
    stores: stores === 1,
  };
}
