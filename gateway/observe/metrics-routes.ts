/** `GET /metrics`, which Prometheus scrapes; the same on both hosts. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Hono } from 'hono';
import { MetricStore } from '../../shared/metrics/metric-store.ts';
import { CONTENT_TYPE, exposition } from '../../shared/metrics/prometheus-exposition.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { isRoleAtLeast, requireScope } from '../accounts/account.ts';
import { authenticateUncached } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { answerOf } from './health-routes.ts';
import { FAMILIES } from './metric-families.ts';
import { addNodeMetrics } from './node-metrics.ts';
import { countedOf } from './other-processes.ts';
import { addDatabaseMetrics, addProcessMetrics } from './process-metrics.ts';
import { metricsReporter, noteStorage } from './request-log.ts';

export const metricsRoutes = new Hono<{ Bindings: Env }>();

metricsRoutes.get('/metrics', async (c) => {
  await permit(c.env, c.req.raw);
  await metricsReporter.flush(c.env);
  // If only one of the two objects answers, the page contains only its metrics. An alert can detect that the others are
  // absent.
  const [counted, census] = await Promise.all([
    answerOf(() => countedOf(c.env, 'port')),
    answerOf(() => c.env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).census()),
  ]);
  if (counted === undefined && census === undefined)
    throw new ApiError('server_is_overloaded', 'The metrics cannot be read now. Try again shortly.');
  const metrics = new MetricStore();
  if (counted !== undefined) metrics.merge(counted);
  else noteStorage(metrics); // the storage may be the reason why the object does not answer
  if (census !== undefined) addNodeMetrics(metrics, census);
  addProcessMetrics(metrics);
  addDatabaseMetrics(metrics, c.env.DATABASE_STATE?.(), c.env.PROCESSES?.state());
  return c.body(exposition(FAMILIES, metrics), 200, { 'content-type': CONTENT_TYPE, 'cache-control': 'no-store' });
});

/**
 * @throws ApiError 401 or 403 unless the request has the metrics token, or an operator's key with the scope
 * `admin:read`; 503 if the key cannot be looked up
 */
async function permit(env: Env, request: Request): Promise<void> {
  const [, token] = /^Bearer (\S{1,512})$/i.exec(request.headers.get('authorization') ?? '') ?? [];
  const wanted = env.OTELA_METRICS_TOKEN?.trim(); // a secret that was read from a file may end with a line feed
  if (token !== undefined && wanted !== undefined && wanted !== '' && isSame(token, wanted)) return;
  const account = await authenticateUncached(env, request, Date.now());
  if (!isRoleAtLeast(account.role, 'operator')) {
    throw new ApiError('permission_denied', 'This requires the metrics token, or a key of an operator.');
  }
  requireScope(account, 'admin:read', 'admin');
}

/** Compares hashes, which have the same length, so that the duration does not depend on the input. */
function isSame(given: string, wanted: string): boolean {
  return timingSafeEqual(digest(given), digest(wanted));
}

function digest(text: string) {
  return createHash('sha256').update(text).digest();
}
