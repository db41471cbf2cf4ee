/** Sends events to the targets that the operator chose: each event once to each target. A single object. */
import { eq } from 'drizzle-orm';
import { errorText } from '../../shared/text/error-text.ts';
import { backoffMs } from '../../shared/timing/backoff.ts';
import { settings } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { type Notifications, notificationsSchema } from '../settings/notification-settings.ts';
import type { EventTarget } from './event-target.ts';
import { findRecentEvents, findSlowEvents, type GatewayEvent } from './find-events.ts';
import { mailTarget } from './mail-target.ts';
import { webhookTarget } from './webhook-target.ts';

/** Name of the only object. */
export const NOTIFICATIONS_NAME = 'notifications';
/** Interval of looking for events. */
const EVERY_MS = 60_000;
/** Interval of looking for what changes slowly, such as monthly limits. */
const SLOWLY_MS = 60 * 60_000;
/** An event is looked for again within this time, because a store may write it late. */
const OVERLAP_MS = 10 * 60_000;
/** How long the id of an event is known after the event was found for the last time: longer than between two looks. */
const KNOWN_MS = 24 * 60 * 60_000;
/** Maximum ids of known events: a day of more events than a gateway has. Each has about 100 bytes. */
const KNOWN_MAX = 100_000;
/** A delivery is given up after this time. */
const GIVE_UP_MS = 3 * 24 * 60 * 60_000;
const RETRY = { minMs: 30_000, maxMs: 6 * 60 * 60_000 };
/** Deliveries that wait; the oldest are dropped. Each has about 500 bytes. */
const WAITING_MAX = 10_000;
/** Deliveries of one target at one alarm. */
const AT_ONCE = 50;

type Delivery = { event: string; body: string; attempts: number };

export class NotificationObject extends GatewayObject {
  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`
      CREATE TABLE IF NOT EXISTS known (event TEXT PRIMARY KEY, at INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS deliveries (event TEXT NOT NULL, target TEXT NOT NULL, body TEXT NOT NULL,
        attempts INTEGER NOT NULL, createdAt INTEGER NOT NULL, nextAt INTEGER NOT NULL, PRIMARY KEY (event, target));
      CREATE INDEX IF NOT EXISTS deliveries_next ON deliveries (nextAt)`);
  }

  /** Looks for events now, and from now on every minute while there are targets. Called if the settings change. */
  async wake(): Promise<void> {
    const { kv } = this.ctx.storage;
    // Events before the first target are not sent.
    if (kv.get('since') === undefined) kv.put('since', this.#now);
    await this.ctx.storage.setAlarm(this.#now);
  }

  async alarm(): Promise<void> {
    const notifications = await readNotifications(this.env).catch((error: unknown) =>
      console.error(`the notifications could not be read and are read again in a minute: ${errorText(error)}`),
    );
    const targets = notifications && this.#targets(notifications);
    if (targets?.length === 0) return this.#forget();
    // Set first: if this alarm fails, the next one must not be lost.
    await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
    if (targets === undefined) return;
    await this.#collect(targets).catch((error: unknown) =>
      console.error(`events could not be read and are read again in a minute: ${errorText(error)}`),
    );
    this.#trim(targets);
    await Promise.all(targets.map((target) => this.#deliver(target)));
    const next = this.#nextDelivery();
    if (next < ((await this.ctx.storage.getAlarm()) ?? next)) await this.ctx.storage.setAlarm(next);
  }

  #targets({ webhooks, mail }: Notifications): EventTarget[] {
    const { env } = this;
    return [
      ...webhooks.map((webhook) => webhookTarget(env, webhook)),
      ...[...new Set(mail?.to)].flatMap((to) => (mail === undefined ? [] : [mailTarget(env, mail, to)])),
    ];
  }

  get #now(): number {
    return this.ctx.clock.now();
  }

  /** Time of the next delivery; infinite: none waits. */
  #nextDelivery(): number {
    const next = 'SELECT min(nextAt) AS at FROM deliveries';
    return this.ctx.storage.sql.exec<{ at: number | null }>(next).one().at ?? Number.POSITIVE_INFINITY;
  }

  /** Without targets, events are not collected, and waiting deliveries are dropped. */
  #forget(): void {
    const { sql, kv } = this.ctx.storage;
    sql.exec('DELETE FROM deliveries');
    kv.delete('since');
    kv.delete('slowly');
  }

  async #collect(targets: readonly EventTarget[]): Promise<void> {
    const { kv, sql } = this.ctx.storage;
    const now = this.#now;
    const since = kv.get<number>('since') ?? now;
    const events = await findRecentEvents(this.env, since);
    const isSlow = now >= (kv.get<number>('slowly') ?? 0);
    if (isSlow) events.push(...(await findSlowEvents(this.env, now)));
    for (const event of events) this.#add(event, targets, now);
    sql.exec('DELETE FROM known WHERE at <= ?', now - KNOWN_MS);
    const oldest = 'SELECT event FROM known ORDER BY at DESC LIMIT -1 OFFSET ?';
    sql.exec(`DELETE FROM known WHERE event IN (${oldest})`, KNOWN_MAX);
    if (isSlow) kv.put('slowly', now + SLOWLY_MS);
    kv.put('since', Math.max(since, now - OVERLAP_MS));
  }

  #add({ id, type, data }: GatewayEvent, targets: readonly EventTarget[], now: number): void {
    const { sql } = this.ctx.storage;
    const isKnown = sql.exec('SELECT event FROM known WHERE event = ?', id).toArray().length > 0;
    sql.exec('INSERT OR REPLACE INTO known VALUES (?, ?)', id, now);
    if (isKnown) return;
    const body = JSON.stringify({ type, timestamp: new Date(now).toISOString(), data });
    for (const target of targets)
      if (target.events?.includes(type) ?? true)
        sql.exec('INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?, 0, ?, ?)', id, target.id, body, now, now);
  }

  /** Sends in the order of the events until one fails. */
  async #deliver(target: EventTarget): Promise<void> {
    const { sql } = this.ctx.storage;
    const waiting =
      'SELECT event, body, attempts FROM deliveries WHERE target = ? AND nextAt <= ? ORDER BY createdAt, event LIMIT ?';
    for (const { event, body, attempts } of sql.exec<Delivery>(waiting, target.id, this.#now, AT_ONCE).toArray()) {
      const failure = await target.send({ id: event, body }, this.#now);
      if (failure !== undefined) {
        console.error(`${target.label} did not accept ${event}: ${failure}`);
        return this.#postpone(target, event, attempts);
      }
      sql.exec('DELETE FROM deliveries WHERE event = ? AND target = ?', event, target.id);
    }
  }

  /** All events of a target that failed wait, so that it gets few requests. The failed event waits ever longer. */
  #postpone({ id }: EventTarget, event: string, attempts: number): void {
    const { sql } = this.ctx.storage;
    const soon = this.#now + EVERY_MS;
    sql.exec('UPDATE deliveries SET nextAt = ? WHERE target = ? AND nextAt < ?', soon, id, soon);
    const nextAt = this.#now + backoffMs(attempts, RETRY);
    const next = 'UPDATE deliveries SET attempts = ?, nextAt = ? WHERE event = ? AND target = ?';
    sql.exec(next, attempts + 1, nextAt, event, id);
  }

  #trim(targets: readonly EventTarget[]): void {
    const { sql } = this.ctx.storage;
    sql.exec('DELETE FROM deliveries WHERE createdAt <= ?', this.#now - GIVE_UP_MS);
    const oldest = 'SELECT rowid FROM deliveries ORDER BY createdAt DESC LIMIT -1 OFFSET ?';
    sql.exec(`DELETE FROM deliveries WHERE rowid IN (${oldest})`, WAITING_MAX);
    const ids = targets.map(({ id }) => id);
    sql.exec(`DELETE FROM deliveries WHERE target NOT IN (${ids.map(() => '?').join(', ')})`, ...ids);
  }
}

/** Reads the setting. It is not in the snapshot, because no request to a model needs it. */
export async function readNotifications(env: Pick<Env, 'DB'>): Promise<Notifications> {
  const [row] = await queryOrUnavailable(
    database(env).select({ value: settings.value }).from(settings).where(eq(settings.name, 'notifications')),
  );
  return notificationsSchema.safeParse(row?.value).data ?? { webhooks: [] };
}
