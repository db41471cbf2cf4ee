/** What the registry carries to every isolate in its snapshot. */
import { desc, gt } from 'drizzle-orm';
import type { Env } from '../env.ts';
import { CACHED_MS } from './authenticate.ts';
import { asked, database } from './database.ts';
import { apiKeys, modelSettings } from './schema.ts';

export interface ModelTimeouts {
  first_byte_ms?: number;
  stall_ms?: number;
}

export interface Settings {
  models: Record<string, ModelTimeouts>;
  /** Hashes of keys that an isolate may still have cached. */
  revokedKeys: string[];
}

/** Longer than any isolate caches a key, by more than a snapshot takes to arrive. */
export const REVOKED_KEPT_MS = CACHED_MS + 60_000;
/** Bounds the snapshot: 64 bytes each. */
const REVOKED_MAX = 10_000;
/** Bounds the snapshot; the admin face refuses more. */
export const MODEL_SETTINGS_MAX = 1_000;

/** Rejects with ApiError 503 when D1 cannot be asked: the registry then keeps what it has. */
export async function readSettings(env: Pick<Env, 'DB'>, now = Date.now()): Promise<Settings> {
  const db = database(env);
  const [models, revoked] = await asked(
    db.batch([
      db.select().from(modelSettings).limit(MODEL_SETTINGS_MAX),
      db
        .select({ hash: apiKeys.hash })
        .from(apiKeys)
        .where(gt(apiKeys.revokedAt, now - REVOKED_KEPT_MS))
        .orderBy(desc(apiKeys.revokedAt))
        .limit(REVOKED_MAX),
    ]),
  );
  return {
    models: Object.fromEntries(models.map((row) => [row.model, timeouts(row)])),
    revokedKeys: revoked.map((row) => row.hash),
  };
}

/** Only what is set: an absent member is the gateway's default. */
export function timeouts(row: { firstByteMs: number | null; stallMs: number | null }): ModelTimeouts {
  return {
    ...(row.firstByteMs === null ? {} : { first_byte_ms: row.firstByteMs }),
    ...(row.stallMs === null ? {} : { stall_ms: row.stallMs }),
  };
}
