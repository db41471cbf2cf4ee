import { Hono } from 'hono';
import type { Env } from './env.ts';
import { REGISTRY_NAME } from './registry/object.ts';

export const healthRoutes = new Hono<{ Bindings: Env }>();

/** The process answers. */
healthRoutes.get('/healthz', (c) => c.json({ status: 'ok' }));

/** What it needs answers too. */
healthRoutes.get('/readyz', async (c) => {
  const checks = {
    database: await answers(() => c.env.DB.prepare('SELECT 1').first()),
    registry: await answers(() => c.env.REGISTRY.getByName(REGISTRY_NAME).ready()),
  };
  const ready = Object.values(checks).every((fine) => fine);
  return c.json({ status: ready ? 'ok' : 'unavailable', checks }, ready ? 200 : 503);
});

async function answers(ask: () => Promise<unknown>): Promise<boolean> {
  try {
    await ask();
    return true;
  } catch {
    return false;
  }
}
