/** `GET` routes below /v1: models and the registry, from the isolate's view. */
import { type Context, Hono } from 'hono';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { ENDPOINTS } from '../../shared/openai/endpoints.ts';
import { errorResponse } from '../../shared/proxy/error-response.ts';
import { noCapacityError } from '../../shared/proxy/filter-nodes.ts';
import { SEAL_MAX_AGE_S, sealCandidates, sealCandidatesRequest } from '../../shared/proxy/seal-candidates-route.ts';
import { lifecycleHeaders } from '../accounts/model-access.ts';
import type { Env } from '../env.ts';
import { coldModels } from '../factory/cold-models.ts';
import type { StartableModel } from '../factory/startable-models.ts';
import { responseOf } from '../http/http-request.ts';
import { requestIdOf } from '../http/request-id.ts';
import { modelParam } from '../http/route-description.ts';
import { authorizedModels, type ReadContext } from '../registry/authorize-registry-read.ts';
import type { RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import { registryRoutes } from '../registry/registry-routes.ts';
import { hostClock } from './gateway-host.ts';
import { listModels, retrieveModel } from './list-models.ts';
import { anthropicModel, anthropicPage, codexList } from './model-list-forms.ts';
import { resolveModelRoute } from './resolve-route.ts';

/** `GET /v1/otela/seal`: returns the nodes to which a client may seal a request. */
async function answerSeal(c: ReadContext): Promise<Response> {
  const { view, account } = await authorizedModels(c);
  const parsed = sealCandidatesRequest(c.req.query('model'));
  const caller = { account, settings: view.settings, untracked: true };
  const route = await resolveModelRoute(c.req.raw, caller, parsed, { env: c.env, ctx: c.executionCtx });
  const refusal = () => noCapacityError(route.request.model);
  const headers = { 'cache-control': `private, max-age=${SEAL_MAX_AGE_S}` };
  const providers = c.req.queries('provider') ?? [];
  return c.json(sealCandidates({ ...route, waitMs: 0 }, { clock: hostClock, refusal }, providers), 200, headers);
}

export const readRoutes = new Hono<{ Bindings: Env }>();

readRoutes.use('*', async (c, next) => {
  await next();
  // Errors, and responses of `handleOpenAI` (mounted after these routes), already have the header, with the id of their
  // log line.
  if (!c.res.headers.has('x-request-id')) c.res.headers.set('x-request-id', requestIdOf(c.req.raw));
});

const MESSAGES = ENDPOINTS.find(({ path }) => path === '/v1/messages');

/** True for a client of Anthropic's API, which always sends this header. */
function isAnthropic(c: Context<{ Bindings: Env }>): boolean {
  return c.req.header('anthropic-version') !== undefined;
}

/** Errors for a client of Anthropic's API have Anthropic's form. */
readRoutes.use('/models/*', async (c, next) => {
  await next();
  if (c.error === undefined || !isAnthropic(c)) return;
  const id = c.res.headers.get('x-request-id') ?? requestIdOf(c.req.raw);
  c.res = responseOf(errorResponse(c.error, id, MESSAGES));
});

readRoutes.get('/models', async (c) => {
  const { view, account } = await authorizedModels(c);
  if (isAnthropic(c) && c.req.query('state') === undefined) {
    const { limit, after_id: afterId, before_id: beforeId } = c.req.query();
    return c.json(anthropicPage(listModels(view, account, undefined).data, { limit, afterId, beforeId }));
  }
  const list = listModels(view, account, wantsAll(c.req.query('state')) ? await startable(c, view) : undefined);
  return c.json(c.req.query('client_version') === undefined ? list : codexList(list));
});
readRoutes.get(`/models/${modelParam('id')}`, async (c) => {
  const { view, account } = await authorizedModels(c);
  const id = c.req.param('id') ?? '';
  const model = retrieveModel(view, account, id, await startable(c, view, id));
  return c.json(isAnthropic(c) ? anthropicModel(model) : model, 200, lifecycleHeaders(view.settings, id));
});
readRoutes.get('/otela/seal', answerSeal);
readRoutes.route('/registry', registryRoutes);

async function startable(
  c: Context<{ Bindings: Env }>,
  { settings }: RegistrySnapshot,
  ...wanted: string[]
): Promise<StartableModel[]> {
  await coldModels.refresh({ env: c.env, ctx: c.executionCtx }, Date.now(), wanted);
  return coldModels.all(Date.now(), settings);
}

/** True if the query has `state=all`. @throws ApiError 400 for another value */
function wantsAll(state: string | undefined): boolean {
  if (state !== undefined && state !== 'all')
    throw new ApiError('invalid_request', 'state: must be "all", or omitted.', { param: 'state' });
  return state === 'all';
}
