/** `GET` under /v1: the models and the registry, from the isolate's view. */
import { type Context, Hono } from 'hono';
import { authenticate, presentedKey } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { registryModels, registryNodes, registryProviders } from '../registry/routes.ts';
import { snapshots, type View } from '../registry/snapshot.ts';
import { listModels, retrieveModel } from './models.ts';
import { requestIdOf } from './request-id.ts';

type ReadContext = Context<{ Bindings: Env }>;

export const readRoutes = new Hono<{ Bindings: Env }>();

readRoutes.use('*', async (c, next) => {
  await next();
  if (c.req.method === 'GET') c.res.headers.set('x-request-id', requestIdOf(c.req.raw));
});

/** The current view, for a caller with a key, or for anybody where the operator opened the registry. */
async function viewFor(c: ReadContext, open: boolean): Promise<View> {
  const now = Date.now();
  const view = await snapshots.get(c.env, c.executionCtx, now, () => true);
  if (!open || presentedKey(c.req.raw) !== undefined) await authenticate(c.env, c.req.raw, view.revoked, now);
  return view;
}

const registry = (c: ReadContext) => viewFor(c, c.env.REGISTRY_ACCESS === 'open');

readRoutes.get('/models', async (c) => c.json(listModels(await viewFor(c, false))));
readRoutes.get('/models/:id{.+}', async (c) => c.json(retrieveModel(await viewFor(c, false), c.req.param('id'))));
readRoutes.get('/registry/nodes', async (c) => c.json(registryNodes(await registry(c))));
readRoutes.get('/registry/models', async (c) => c.json(registryModels(await registry(c))));
readRoutes.get('/registry/providers', async (c) => c.json(registryProviders(await registry(c))));
