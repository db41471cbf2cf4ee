/** Checks once in a minute which models of the status page are served, and keeps counts. A single object. */
import { errorText } from '../../shared/text/error-text.ts';
import { readSetting } from '../accounts/read-setting.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { type StatusPage, statusPageSchema } from '../settings/status-settings.ts';
import { type Availability, availabilityOf, DAY_MS, DAYS, HOUR_MS, type HourlyChecks } from './availability.ts';

/** Name of the only object. */
export const STATUS_NAME = 'status';
const EVERY_MS = 60_000;
/** A state that was checked before this time is unknown now. */
const FRESH_MS = 3 * EVERY_MS;

type ModelState = 'up' | 'down' | 'unknown';
interface LastCheck {
  at: number;
  up: readonly string[];
}

export interface StatusReport {
  /** Time of the last check; null: there was none. */
  checked_at: string | null;
  banner: StatusPage['banner'] | null;
  models: ({ id: string; state: ModelState } & Availability)[];
}

export class StatusObject extends GatewayObject {
  /** Availability by model, until the next check, hour or change of the models. */
  #known: { key: string; models: Map<string, Availability | undefined> } | undefined;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    // At most 50 models and 91 days.
    ctx.storage.sql.exec(`CREATE TABLE IF NOT EXISTS checks (model TEXT NOT NULL, hour INTEGER NOT NULL,
      up INTEGER NOT NULL, down INTEGER NOT NULL, PRIMARY KEY (model, hour))`);
  }

  /** Checks now, and from now on every minute while there is a status page. Called if the setting changes. */
  async wake(): Promise<void> {
    await this.ctx.storage.setAlarm(this.#now);
  }

  async alarm(): Promise<void> {
    let page: StatusPage | undefined;
    try {
      page = await readStatusPage(this.env);
      if (page === undefined) return this.#forget();
      await this.#check(page);
    } catch (error) {
      console.error(`the models of the status page could not be checked: ${errorText(error)}`);
    }
    await this.ctx.storage.setAlarm(this.#now + EVERY_MS);
  }

  /** Returns undefined if there is no status page. */
  async report(): Promise<StatusReport | undefined> {
    const page = await readStatusPage(this.env);
    if (page === undefined) return undefined;
    const now = this.#now;
    const last = this.ctx.storage.kv.get<LastCheck>('last');
    const isFresh = last !== undefined && now - last.at < FRESH_MS;
    const known = this.#availabilities(page.models, last?.at, now);
    const models = page.models.map((id) => {
      const availability = known.get(id);
      const state: ModelState = isFresh && availability ? (last.up.includes(id) ? 'up' : 'down') : 'unknown';
      return { id, state, ...(availability ?? availabilityOf([], now)) };
    });
    const checked_at = last === undefined ? null : new Date(last.at).toISOString();
    return { checked_at, banner: page.banner ?? null, models };
  }

  /** Undefined for a model that was never checked. Visitors may ask every few seconds, and the checks may be many. */
  #availabilities(models: readonly string[], checkedAt: number | undefined, now: number) {
    const key = JSON.stringify([checkedAt, Math.floor(now / HOUR_MS), models]);
    if (this.#known?.key === key) return this.#known.models;
    const query = 'SELECT hour, up, down FROM checks WHERE model = ?';
    const of = (id: string): [string, Availability | undefined] => {
      const checks = this.ctx.storage.sql.exec<HourlyChecks & Record<string, number>>(query, id).toArray();
      return [id, checks.length === 0 ? undefined : availabilityOf(checks, now)];
    };
    this.#known = { key, models: new Map(models.map(of)) };
    return this.#known.models;
  }

  get #now(): number {
    return this.ctx.clock.now();
  }

  async #check({ models }: StatusPage): Promise<void> {
    const census = await this.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).census();
    const served = new Set(census.models.flatMap(({ model, ready }) => (ready > 0 ? [model] : [])));
    const { kv, sql } = this.ctx.storage;
    const now = this.#now;
    const up = models.filter((id) => served.has(id));
    for (const id of new Set(models)) {
      const [good, bad] = served.has(id) ? [1, 0] : [0, 1];
      const add = `INSERT INTO checks VALUES (?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET up = up + excluded.up, down = down + excluded.down`;
      sql.exec(add, id, Math.floor(now / HOUR_MS), good, bad);
    }
    kv.put<LastCheck>('last', { at: now, up });
    sql.exec('DELETE FROM checks WHERE hour < ?', Math.floor((now - (DAYS + 1) * DAY_MS) / HOUR_MS));
    const listed = models.map(() => '?').join(', ');
    sql.exec(`DELETE FROM checks WHERE model NOT IN (${listed})`, ...models);
  }

  /** Without a status page, nothing is kept. */
  #forget(): void {
    this.ctx.storage.sql.exec('DELETE FROM checks');
    this.ctx.storage.kv.delete('last');
  }
}

export function readStatusPage(env: Pick<Env, 'DB'>): Promise<StatusPage | undefined> {
  return readSetting(env, 'status_page', statusPageSchema);
}
