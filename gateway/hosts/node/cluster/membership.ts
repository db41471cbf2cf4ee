/**
 * This process among the processes that share a database: its heartbeat, the slots that it owns, and the processes that
 * run. One round of statements every BEAT_MS, on a connection that nothing else uses.
 */
import { performance } from 'node:perf_hooks';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import { DatabaseClock } from './database-clock.ts';
import { ObjectSlots, SLOTS } from './object-slots.ts';
import type { MembershipEvents, ProcessMembership } from './process-membership.ts';
import { BEAT_MS, OWNER_DEADLINE_MS, type ProcessIdentity, type ProcessRow, ProcessTable } from './process-table.ts';

/** Interval at which alarms are read again: a former owner may have stored one after the slot was claimed. */
const ALARMS_MS = 30_000;

/** Readings of a process that has ended, until its last heartbeat must have been read. */
const PROOF_READINGS = 2;

interface MembershipOptions {
  connection: Connection;
  me: ProcessIdentity;
  events: MembershipEvents;
  /** False while this process cannot write to its disk: it then gives its slots to processes that can. */
  stores(): boolean;
}

export class Membership implements ProcessMembership {
  readonly #options: MembershipOptions;
  readonly #slots: ObjectSlots;
  readonly #processes: ProcessTable;
  readonly #clock: DatabaseClock;
  /** This process may load the objects of these slots. */
  #mine: ReadonlySet<number> = new Set();
  /** Slots that are being given back. */
  #leaving: ReadonlySet<number> = new Set();
  #running: ProcessRow[] = [];
  /** When the last heartbeat that succeeded was sent, by the monotonic clock. */
  #beatAt = Number.NEGATIVE_INFINITY;
  #alarmsAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<void> | undefined;
  #isFailing = false;
  #isClosed = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    const { connection, me, stores } = options;
    this.#clock = new DatabaseClock(options.events.log);
    this.#slots = new ObjectSlots(connection, me.incarnation);
    this.#processes = new ProcessTable(connection, me, () => performance.now(), stores);
  }

  /** Joins the other processes and claims slots. */
  async join(): Promise<void> {
    await this.#slots.create();
    await this.#processes.join();
    await this.#nextRound();
    this.#timer = setInterval(() => neverRejects(this.now()), BEAT_MS);
    this.#timer.unref();
  }

  /** True if this process owns the slot. False for a slot that it is giving back. */
  owns(slot: number): boolean {
    return this.#mine.has(slot) && !this.#leaving.has(slot);
  }

  /** Incarnation of the slot's owner, as far as this process knows. */
  ownerOf(slot: number): string | undefined {
    return this.#leaving.has(slot) ? undefined : this.#slots.ownerOf(slot);
  }

  /**
   * Call this before an object is used. After a pause, another process may own the slots: a heartbeat then decides. If
   * PostgreSQL does not answer, this process continues, because other processes may not reach it either.
   */
  current(): Promise<void> | undefined {
    return this.silentMs < OWNER_DEADLINE_MS || this.#isFailing ? undefined : this.now();
  }

  /** Milliseconds since the last heartbeat that succeeded was sent. */
  get silentMs(): number {
    return performance.now() - this.#beatAt;
  }

  /** Processes that run, including this one. */
  get running(): readonly ProcessRow[] {
    return this.#running;
  }

  /** Number of processes that run, including this one. */
  get size(): number {
    return Math.max(1, this.#running.length);
  }

  /** Number of slots that this process owns. */
  get owned(): number {
    return this.#mine.size;
  }

  /** Number of slots that this process should own. If no process can write to its disk, all own slots. */
  get #share(): number {
    const able = this.#running.filter(({ stores }) => stores);
    const owners = able.length === 0 ? this.#running : able;
    const isOwner = owners.some(({ incarnation }) => incarnation === this.#options.me.incarnation);
    return isOwner ? Math.ceil(SLOTS / owners.length) : 0;
  }

  /** Runs a round now. Concurrent calls share it. Never rejects. */
  now(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#round ??= this.#nextRound()
      .then(
        () => this.#onRound(undefined),
        (error: unknown) => this.#onRound(error),
      )
      .finally(() => {
        this.#round = undefined;
      });
    return this.#round;
  }

  #onRound(error: unknown): void {
    const { log } = this.#options.events;
    if (error !== undefined && !this.#isFailing) log(`PostgreSQL does not answer: ${errorText(error)}`);
    if (error === undefined && this.#isFailing) log('PostgreSQL answers again');
    this.#isFailing = error !== undefined;
  }

  async #nextRound(): Promise<void> {
    const { me, events, connection } = this.#options;
    const [sentAt, sentMs] = [performance.now(), Date.now()];
    const databaseMs = await this.#processes.beat();
    if (databaseMs === undefined) await this.#joinAgain();
    else this.#clock.compare(databaseMs, sentMs, Date.now());
    this.#beatAt = sentAt;
    this.#setRunning(await this.#processes.running());
    const owned = this.#mine;
    const share = this.#share;
    await this.#slots.claim(share);
    this.#setOwned(new Set(this.#slots.owned()));
    const isNew = [...this.#mine].some((slot) => !owned.has(slot));
    if (isNew || performance.now() - this.#alarmsAt > ALARMS_MS)
      events.onAlarms(await readAlarms(connection, this.#mine));
    if (isNew) this.#alarmsAt = performance.now();
    events.onProcesses(this.#running.filter(({ incarnation }) => incarnation !== me.incarnation));
    await this.#giveBack(this.#slots.excess(share));
  }

  #setRunning(running: ProcessRow[]): void {
    const { me, events } = this.#options;
    const others = (rows: readonly ProcessRow[], known: readonly ProcessRow[]) =>
      rows.filter(
        ({ incarnation }) => incarnation !== me.incarnation && !known.some((one) => one.incarnation === incarnation),
      );
    for (const { process, address } of others(this.#running, running))
      events.log(`process ${process} at ${address} has ended`);
    for (const { process, address, version } of others(running, this.#running))
      events.log(`process ${process} at ${address} runs version ${version}`);
    this.#running = running;
  }

  #setOwned(mine: ReadonlySet<number>): void {
    const lost = new Set([...this.#mine].filter((slot) => !mine.has(slot)));
    this.#mine = mine;
    if (lost.size > 0) this.#options.events.onLost(lost);
  }

  /** Another process has declared the end of this one, and may own its slots. */
  async #joinAgain(): Promise<void> {
    this.#options.events.log('another process declared that this one has ended; it joins again');
    this.#slots.forget();
    this.#setOwned(new Set());
    await this.#processes.join();
  }

  async #giveBack(slots: readonly number[]): Promise<void> {
    if (slots.length === 0) return;
    this.#leaving = new Set(slots);
    try {
      await this.#options.events.release(this.#leaving);
      await this.#slots.release(slots);
      this.#mine = new Set(this.#slots.owned());
    } finally {
      this.#leaving = new Set();
    }
  }

  /**
   * Declares that a process has ended, and claims its slots. The number of its heartbeats is read before: it may have
   * sent one since the last round. The round may have begun before the end, but the next one begins after it.
   */
  async prove(incarnation: string): Promise<void> {
    for (let reading = 0; reading < PROOF_READINGS; reading++) {
      await this.now();
      const row = this.#running.find((one) => one.incarnation === incarnation);
      if (row === undefined || this.#isClosed) return;
      if (await this.#processes.declare(incarnation, 'proved', row.beat).catch(() => false)) return this.now();
    }
  }

  /** Gives all slots back and leaves. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#round;
    this.#isClosed = true;
    try {
      await this.#giveBack(this.#slots.owned());
      await this.#processes.leave();
    } catch (error) {
      this.#options.events.log(`the slots are not given back: ${errorText(error)}`);
    }
  }
}

async function readAlarms(connection: Connection, slots: ReadonlySet<number>): Promise<{ key: string; at: number }[]> {
  const query = 'SELECT object, at FROM object_alarms WHERE slot = ANY($1::smallint[])';
  const { rows } = await connection.query(query, [[...slots]]);
  return rows.map(([object, at]) => ({ key: String(object), at: Number(at) }));
}
