/** The history of nodes: joins and losses, including those while no dashboard was open. */
import { DEPARTURE_CAUSES, type DepartureCause, departureCause } from '../../../shared/lattice/departure-cause.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import type { ObjectStorage, Sql, SqlValue } from '../../platform/object-context.ts';
import { writeIfPossible } from '../../platform/storage/storage-health.ts';
import { telemetrySink } from '../../platform/telemetry-sink.ts';

export const NODE_EVENTS = ['join', 'serving', 'down', 'suspected', 'trusted', 'left'] as const;
type NodeEvent = (typeof NODE_EVENTS)[number];

/** Maximum stored events; the oldest are dropped first. */
const EVENTS_MAX = 20_000;
/**
 * Maximum stored events of one provider, so that sessions that keep joining and leaving displace only events of the
 * same provider.
 */
const OF_PROVIDER_MAX = 2_000;
const RETENTION_MS = 30 * 24 * 60 * 60_000;
/** Maximum events that wait in memory while storage fails; the oldest are dropped. */
const WAITING_MAX = 1_000;
/** Old events are deleted once per this many events, so that an event is normally one write. */
const TRIM_EVERY = 256;
/**
 * A session's next suspicion within this time is not stored. Otherwise a session that is suspected and trusted again
 * and again would displace all other events.
 */
const SUSPICION_INTERVAL_MS = 60_000;
/** Maximum sessions whose last suspicion is remembered for SUSPICION_INTERVAL_MS. */
const SUSPECTED_MAX = 10_000;

export interface HistoryEvent {
  /** Id of the event, which grows with time. */
  id: number;
  /** Milliseconds since the epoch, by this gateway's clock. */
  at: number;
  session: string;
  /** Name of the machine, as Slurm calls it; null: the agent did not report it. */
  node: string | null;
  provider: string;
  cluster: string;
  event: NodeEvent;
  /** For `down` and `left`: the reason of the agent or of the eviction. For `suspected`: what was observed. */
  reason: string | null;
}

export interface HistoryQuery {
  provider?: string | undefined;
  session?: string | undefined;
  event?: NodeEvent | undefined;
  /** Only events that are older than the event with this id. */
  after?: number | undefined;
  limit: number;
}

/** Returns the events between two states of one session, in order. Pure. */
function eventsBetween(before: RegistryEntry | undefined, now: RegistryEntry | undefined): NodeEvent[] {
  const was = before?.state ?? 'LEFT';
  const is = now?.state ?? 'LEFT';
  const events: NodeEvent[] = [];
  if (before === undefined && is !== 'LEFT') events.push('join');
  if (is !== was) {
    if (is === 'SERVING') events.push('serving');
    else if (is === 'DOWN') events.push('down');
    else if (is === 'LEFT') events.push('left');
  }
  if (is !== 'LEFT' && (before?.suspected ?? false) !== now?.suspected)
    events.push(now?.suspected ? 'suspected' : 'trusted');
  return events;
}

/** Returns the reason of an event. For a node that is DOWN or LEFT, its entry contains the reason. */
function reasonOf(event: NodeEvent, { leaving }: RegistryEntry, reason: string | undefined): string | null {
  switch (event) {
    case 'down':
      return leaving ?? null;
    case 'left':
      return leaving ?? reason ?? null;
    case 'suspected':
      return reason ?? null;
    default:
      return null;
  }
}

/** The event log of one registry object, in its SQLite database. It outlives the object and every session in it. */
export class NodeEventLog {
  readonly #sql: Sql;
  #untrimmed = 0;
  readonly #waiting: SqlValue[][] = [];
  /** Nodes that left since this object woke, by cause. */
  readonly departures: Record<DepartureCause, number>;
  /**
   * Recent suspicions by session, the latest at the end. `until`: no further suspicion is stored before this time.
   * `stored`: true if the last suspicion was stored.
   */
  readonly #suspected = new Map<string, { until: number; stored: boolean }>();

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    this.departures = Object.fromEntries(DEPARTURE_CAUSES.map((cause) => [cause, 0])) as Record<DepartureCause, number>;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS history (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, session TEXT NOT NULL, node TEXT, provider TEXT NOT NULL, cluster TEXT NOT NULL, event TEXT NOT NULL, reason TEXT)',
    );
    sql.exec('CREATE INDEX IF NOT EXISTS history_provider ON history (provider, id)');
    sql.exec('CREATE INDEX IF NOT EXISTS history_session ON history (session, id)');
  }

  /**
   * Records that a session is shown differently. `before` undefined: it was not shown; `now` undefined: it is not shown
   * any more.
   */
  changed(before: RegistryEntry | undefined, now: RegistryEntry | undefined, reason: string | undefined, at: number) {
    const entry = now ?? before;
    if (entry === undefined) return;
    for (const event of eventsBetween(before, now)) {
      if (this.#isNoise(entry.session, event, at)) continue;
      const why = reasonOf(event, entry, reason);
      if (event === 'left') this.#depart(entry, why, at);
      this.#add(entry, event, why, at);
    }
  }

  /** Logs that a node left, next to the log lines of requests, and counts the cause. */
  #depart({ session, job, provider, cluster }: RegistryEntry, reason: string | null, at: number): void {
    const cause = departureCause(reason);
    this.departures[cause]++;
    const fields = { session, node: job?.node, job: job?.id, provider, cluster, cause, reason };
    const line = { event: 'node_left', at: new Date(at).toISOString(), ...fields };
    telemetrySink.sink?.event(line);
    console.log(JSON.stringify(line));
  }

  /**
   * True if the event should not be stored: a session's suspicions are stored at most once a minute, and `trusted` only
   * if the suspicion that it ends was stored.
   */
  #isNoise(session: string, event: NodeEvent, at: number): boolean {
    const known = this.#suspected.get(session);
    if (event === 'trusted') return known?.stored === false;
    if (event !== 'suspected') return false;
    const stored = known === undefined || known.until <= at;
    this.#suspected.delete(session);
    this.#suspected.set(session, stored ? { until: at + SUSPICION_INTERVAL_MS, stored } : { ...known, stored });
    const [oldest] = this.#suspected.keys();
    if (this.#suspected.size > SUSPECTED_MAX && oldest !== undefined) this.#suspected.delete(oldest);
    return !stored;
  }

  #add({ session, job, provider, cluster }: RegistryEntry, event: NodeEvent, reason: string | null, at: number): void {
    this.#waiting.push([at, session, job?.node ?? null, provider, cluster, event, reason]);
    if (this.#waiting.length > WAITING_MAX) this.#waiting.shift();
    writeIfPossible(() => this.#write(at));
  }

  /** Writes all waiting events, including those that could not be written before. */
  #write(now: number): void {
    const insert =
      'INSERT INTO history (at, session, node, provider, cluster, event, reason) VALUES (?, ?, ?, ?, ?, ?, ?)';
    for (let row = this.#waiting[0]; row !== undefined; row = this.#waiting[0]) {
      this.#sql.exec(insert, ...row);
      this.#waiting.shift();
      this.#untrimmed++;
    }
    if (this.#untrimmed >= TRIM_EVERY) this.sweep(now);
  }

  /** Returns events, newest first, and one more than `limit` if there are more. */
  list({ provider, session, event, after, limit }: HistoryQuery): HistoryEvent[] {
    const conditions: [string, string | number | undefined][] = [
      ['provider = ?', provider],
      ['session = ?', session],
      ['event = ?', event],
      ['id < ?', after],
    ];
    const asked = conditions.flatMap(([sql, value]) => (value === undefined ? [] : [{ sql, value }]));
    const where = asked.length === 0 ? '' : `WHERE ${asked.map(({ sql }) => sql).join(' AND ')}`;
    const query = `SELECT id, at, session, node, provider, cluster, event, reason FROM history ${where} ORDER BY id DESC LIMIT ?`;
    const rows = this.#sql.exec<HistoryEvent & Record<string, SqlValue>>(
      query,
      ...asked.map(({ value }) => value),
      limit + 1,
    );
    return [...rows];
  }

  sweep(now: number): void {
    this.#untrimmed = 0;
    this.#sql.exec('DELETE FROM history WHERE at <= ?', now - RETENTION_MS);
    // Each of these statements scans an index or the primary keys once.
    this.#sql.exec(
      'DELETE FROM history WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY provider ORDER BY id DESC) AS n FROM history) WHERE n > ?)',
      OF_PROVIDER_MAX,
    );
    // The limit is by number of rows and not by id, because the limit per provider has deleted rows in between.
    this.#sql.exec(
      'DELETE FROM history WHERE id <= (SELECT id FROM history ORDER BY id DESC LIMIT 1 OFFSET ?)',
      EVENTS_MAX,
    );
  }
}
