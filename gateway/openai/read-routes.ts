/** `GET` under /v1: the models and the registry, from the isolate's view. */
import { type Context, Hono } from 'hono';
import { ApiError } from '../../shared/openai/errors.ts';
import { lifeHeaders } from '../accounts/catalogue.ts';
import { modelParam } from '../described-route.ts';
import type { Env } from '../env.ts';
import { coldModels } from '../factory/cold-models.ts';
import type { Startable } from '../factory/startable.ts';
import { readModels } from '../registry/access.ts';
import { registryRoutes } from '../registry/routes.ts';
import type { View } from '../registry/snapshot.ts';
import { requestIdOf } from '../request-id.ts';
import { listModels, retrieveModel } from './models.ts';
import { answerSeal } from './seal-route.ts';

export const readRoutes = new Hono<{ Bindings: Env }>();

readRoutes.use('*', async (c, next) => {
  await next();
  // An error, and what went on to the models' handler, has one already: that is the one in the log.
  if (!c.res.headers.has('x-request-id')) c.res.headers.set('x-request-id', requestIdOf(c.req.raw));
});

readRoutes.get('/models', async (c) => {
  const { view, account } = await readModels(c);
  return c.json(listModels(view, account, wantsAll(c.req.query('state')) ? await startable(c, view) : undefined));
});
readRoutes.get(`/models/${modelParam('id')}`, async (c) => {
  const { view, account } = await readModels(c);
  const id = c.req.param('id') ?? '';
  return c.json(retrieveModel(view, account, id, await startable(c, view, id)), 200, lifeHeaders(view.settings, id));
});
readRoutes.get('/otela/seal', answerSeal);
readRoutes.route('/registry', registryRoutes);

async function startable(c: Context<{ Bindings: Env }>, { settings }: View, ...wanted: string[]): Promise<Startable[]> {
  await coldModels.refresh({ env: c.env, ctx: c.executionCtx }, Date.now(), wanted);
  return coldModels.all(Date.now(), settings);
}

/** @throws ApiError 400 */
function wantsAll(state: string | undefined): boolean {
  if (state !== undefined && state !== 'all')
    throw new ApiError('invalid_request', 'state: is "all", or left out', { param: 'state' });
  return state === 'all';
}
