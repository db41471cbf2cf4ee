/** `GET /status` and `GET /status.json`: public, if the operator made a status page. */
import { type Context, Hono } from 'hono';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';
import type { Env } from '../env.ts';
import { STATUS_NAME, type StatusReport } from './status-object.ts';
import { statusPage, statusPolicy } from './status-page.ts';
import { textsFor } from './status-texts.ts';

/** How long this isolate uses a report. Visitors then cost at most one call of the object in this time. */
const CACHED_MS = 10_000;
/** The result and not a promise, because on Workers only the request that created a promise may await it. */
let cached: { at: number; report: StatusReport | undefined } | undefined;

export const statusRoutes = new Hono<{ Bindings: Env }>();

statusRoutes.get('/status.json', async (c) => {
  const report = await reportFor(c);
  return c.json({ object: 'status', ...report }, 200, { 'cache-control': 'public, max-age=30' });
});
statusRoutes.get('/status', async (c) => {
  const report = await reportFor(c);
  return c.html(statusPage(report, textsFor(c.req.header('accept-language'))), 200, {
    'cache-control': 'public, max-age=30',
    vary: 'accept-language',
    'content-security-policy': await statusPolicy(),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
  });
});

/** @throws ApiError 404 if there is no status page */
async function reportFor({ env }: Context<{ Bindings: Env }>): Promise<StatusReport> {
  const now = Date.now();
  if (cached === undefined || !isRecent(CACHED_MS, cached.at, now)) {
    // While this request asks the object, others use the former report.
    if (cached !== undefined) cached = { ...cached, at: now };
    const report: StatusReport | undefined = await env.STATUS.getByName(STATUS_NAME).report();
    cached = { at: now, report };
  }
  if (cached.report === undefined) throw new ApiError('not_found', 'This gateway has no public status page.');
  return cached.report;
}
