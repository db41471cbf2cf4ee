import { Hono } from 'hono';
import { ACCOUNT_CACHED_MS } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { storageHealth } from '../platform/storage/storage-health.ts';
import { releaseRules } from '../registry/attest-release.ts';

export const healthRoutes = new Hono<{ Bindings: Env }>();

/** Liveness: the process answers. */
healthRoutes.get('/healthz', (c) => c.json({ status: 'ok' }));

/** Readiness: the gateway's dependencies answer too. */
healthRoutes.get('/readyz', async (c) => {
  const [database, registry] = await Promise.all([
    answerOf(() => c.env.DB.prepare('SELECT 1').first()),
    answerOf(() => c.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).ready()),
  ]);
  const { failure } = storageHealth;
  const checks = { database: database !== undefined, registry: registry !== undefined, storage: failure === undefined };
  // Several processes lose PostgreSQL together. A load balancer must not drop all of them while known keys work.
  const silentMs = c.env.PROCESSES?.databaseSilentMs() ?? Number.POSITIVE_INFINITY;
  const ready =
    (checks.database || silentMs < (c.env.MAX_STALE_MS ?? ACCOUNT_CACHED_MS)) && checks.registry && checks.storage;
  const {
    issuer = null,
    issuerId = null,
    certificateEnds,
    frozen = [],
    sessions = null,
    delegates = null,
    doubles = null,
  } = registry ?? {};
  // If `issuer` is `own`, no issuer's key was configured: tickets become invalid if this installation's storage is
  // lost; see docs/registry.md.
  const ends = certificateEnds === undefined ? null : new Date(certificateEnds * 1000).toISOString();
  const { required, keys } = releaseRules(c.env);
  const state = {
    // If `required` is false, any program with a join token is admitted as an agent.
    signed_agents: { required, keys: keys.length },
    issuer: { keys: issuer, id: issuerId, certificate_ends_at: ends },
    registry: { sessions, delegates, frozen_clusters: frozen, double_completions: doubles },
  };
  const storage = {
    failure: failure?.reason ?? null,
    failing_since: failure === undefined ? null : new Date(failure.since).toISOString(),
    held_records: storageHealth.held,
    lost_records: storageHealth.lost,
  };
  const status = ready ? 'ok' : 'unavailable';
  return c.json({ status, checks, storage, ...state }, ready ? 200 : 503);
});

/** Calls `ask`. Returns undefined if `ask` fails. */
export async function answerOf<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch {
    return undefined;
  }
}
