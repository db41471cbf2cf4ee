/** `GET /metrics`: what Prometheus scrapes, the same on both runtimes. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Hono } from 'hono';
import { Book } from '../../shared/metrics/book.ts';
import { CONTENT_TYPE, exposition } from '../../shared/metrics/exposition.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { atLeast, requireScope } from '../accounts/account.ts';
import { authenticateAnew } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { REGISTRY_NAME } from '../registry-name.ts';
import { addCensus } from './census.ts';
import { FAMILIES } from './families.ts';
import { addOwn } from './own.ts';
import { OBSERVE_NAME } from './report.ts';
import { noteStorage, reporter } from './request-log.ts';

export const metricsRoutes = new Hono<{ Bindings: Env }>();

metricsRoutes.get('/metrics', async (c) => {
  await permit(c.env, c.req.raw);
  await reporter.flush(c.env);
  // Either alone is worth a page: what cannot be asked is missing from it, and its absence can be alerted on.
  const [counted, census] = await Promise.all([
    answer(() => c.env.OBSERVE.getByName(OBSERVE_NAME).read()),
    answer(() => c.env.REGISTRY.getByName(REGISTRY_NAME).census()),
  ]);
  if (counted === undefined && census === undefined)
    throw new ApiError('server_is_overloaded', 'The counts cannot be reached. Try again shortly.');
  const book = new Book();
  if (counted !== undefined) book.merge(counted);
  else noteStorage(book); // it may be the storage that keeps the object away
  if (census !== undefined) addCensus(book, census);
  addOwn(book);
  return c.body(exposition(FAMILIES, book), 200, { 'content-type': CONTENT_TYPE, 'cache-control': 'no-store' });
});

/** The metrics token, or an operator's key that may read. @throws ApiError 401, 403, 503 */
async function permit(env: Env, request: Request): Promise<void> {
  const [, token] = /^Bearer (\S{1,512})$/i.exec(request.headers.get('authorization') ?? '') ?? [];
  const wanted = env.OTELA_METRICS_TOKEN?.trim(); // secrets that came out of a file end with a line's end
  if (token !== undefined && wanted !== undefined && wanted !== '' && isSame(token, wanted)) return;
  const account = await authenticateAnew(env, request, Date.now());
  if (!atLeast(account.role, 'operator')) {
    throw new ApiError('permission_denied', 'This needs the metrics token, or a key of an operator.');
  }
  requireScope(account, 'admin:read', 'admin');
}

/** Hashes have one length and tell nothing of what they are of, so that comparing takes as long whatever is given. */
function isSame(given: string, wanted: string): boolean {
  return timingSafeEqual(digest(given), digest(wanted));
}

function digest(text: string) {
  return createHash('sha256').update(text).digest();
}

async function answer<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch {
    return undefined;
  }
}
