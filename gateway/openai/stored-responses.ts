/** Which node stored which response, by project: the gateway's side of shared/proxy/stored-responses.ts. */
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { StoredResponse, StoredResponses } from '../../shared/proxy/stored-response-index.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { Background, ObjectContext } from '../platform/object-context.ts';
import type { ModelCaller } from './resolve-route.ts';

/** Engines keep responses in memory, so most are gone earlier. */
const KEPT_MS = 7 * 24 * 60 * 60_000;
/** Maximum ids of one project, about 150 bytes each. Above it the oldest are forgotten. */
const IDS_MAX = 10_000;
/** Ids that are forgotten together, because each deletion reads the index. */
const FORGOTTEN = 500;

type Row = { session: string; model: string; charged: number };

/** The ids of one project's stored responses, or of one key's without a project. */
export class StoredResponsesObject extends GatewayObject {
  #count: number;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`CREATE TABLE IF NOT EXISTS responses
      (id TEXT PRIMARY KEY, session TEXT NOT NULL, model TEXT NOT NULL, charged INTEGER NOT NULL, at INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS responses_at ON responses (at)`);
    this.#count = this.#counted();
  }

  find(id: string): StoredResponse | undefined {
    const query = 'SELECT session, model, charged FROM responses WHERE id = ? AND at > ?';
    const [row] = this.ctx.storage.sql.exec<Row>(query, id, this.ctx.clock.now() - KEPT_MS).toArray();
    return row && { ...row, charged: row.charged === 1 };
  }

  async add(id: string, { session, model, charged }: StoredResponse): Promise<void> {
    const { sql } = this.ctx.storage;
    const now = this.ctx.clock.now();
    const insert = 'INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?, ?) RETURNING id';
    this.#count += sql.exec(insert, id, session, model, charged ? 1 : 0, now).toArray().length;
    if (this.#count > IDS_MAX) {
      sql.exec('DELETE FROM responses WHERE id IN (SELECT id FROM responses ORDER BY at LIMIT ?)', FORGOTTEN);
      this.#count = this.#counted();
    }
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(now + KEPT_MS);
  }

  charged(id: string): void {
    this.ctx.storage.sql.exec('UPDATE responses SET charged = 1 WHERE id = ?', id);
  }

  remove(id: string): void {
    this.#count -= this.ctx.storage.sql.exec('DELETE FROM responses WHERE id = ? RETURNING id', id).toArray().length;
  }

  /** Deletes old ids. The next alarm is due when the oldest of the others is old. */
  async alarm(): Promise<void> {
    const { storage, clock } = this.ctx;
    storage.sql.exec('DELETE FROM responses WHERE at <= ?', clock.now() - KEPT_MS);
    this.#count = this.#counted();
    const [oldest] = storage.sql.exec<{ at: number }>('SELECT at FROM responses ORDER BY at LIMIT 1').toArray();
    if (oldest !== undefined) await storage.setAlarm(oldest.at + KEPT_MS);
  }

  #counted(): number {
    return this.ctx.storage.sql.exec<{ n: number }>('SELECT COUNT(*) AS n FROM responses').one().n;
  }
}

export function storedResponses(env: Env, background: Background): StoredResponses<ModelCaller> {
  const of = ({ account }: ModelCaller) => env.RESPONSES.getByName(account.projectId ?? `key ${account.keyId}`);
  // If such a call fails, the response is not found later, or its tokens count a second time.
  const later = (call: Promise<void>) => background.waitUntil(call.catch(() => {}));
  return {
    find: async (caller, id) => {
      try {
        return (await of(caller).find(id)) ?? undefined;
      } catch (cause) {
        const message = 'The gateway cannot look up the stored response now. Try again shortly.';
        throw new ApiError('server_is_overloaded', message, { cause });
      }
    },
    add: (caller, id, stored) => later(of(caller).add(id, stored)),
    charged: (caller, id) => later(of(caller).charged(id)),
    remove: (caller, id) => later(of(caller).remove(id)),
  };
}
