/** What a host that is a process beside this one reports of the data directory. Without the secret that both share there is no such route. */
import { timingSafeEqual } from 'node:crypto';
import { Hono } from 'hono';
import * as z from 'zod';
import type { Env } from '../env.ts';
import { storageHealth } from './health.ts';
import { SECRET_HEADER, STORAGE_PATH } from './paths.ts';

const reportSchema = z.object({ failure: z.string().max(1_000).nullable() });
const encoder = new TextEncoder();

export const storageRoutes = new Hono<{ Bindings: Env }>();

storageRoutes.put(STORAGE_PATH, async (c) => {
  if (!isSecret(c.env.OUTLET_SECRET, c.req.header(SECRET_HEADER))) return c.notFound();
  const report = reportSchema.safeParse(await c.req.json());
  if (!report.success) return c.body(null, 400);
  storageHealth.tell(report.data.failure, Date.now());
  return c.body(null, 204);
});

function isSecret(secret: string | undefined, said: string | undefined): boolean {
  if (secret === undefined || said === undefined) return false;
  const [wanted, given] = [encoder.encode(secret), encoder.encode(said)];
  return wanted.length === given.length && timingSafeEqual(wanted, given);
}
