/** `GET /v1/otela/seal`: whom a client may seal a request to. */

import { noCapacity } from '../../shared/proxy/filter.ts';
import { askedModel, SEAL_MAX_AGE_S, sealCandidates } from '../../shared/proxy/seal-candidates.ts';
import { type ReadContext, readModels } from '../registry/access.ts';
import { clock } from './gateway-host.ts';
import { resolveRoute } from './resolve-route.ts';

export async function answerSeal(c: ReadContext): Promise<Response> {
  const { view, account } = await readModels(c);
  const parsed = askedModel(c.req.query('model'));
  const caller = { account, settings: view.settings, untracked: true };
  const route = await resolveRoute(c.req.raw, caller, parsed, { env: c.env, ctx: c.executionCtx });
  const refusal = () => noCapacity(route.request.model);
  const headers = { 'cache-control': `private, max-age=${SEAL_MAX_AGE_S}` };
  const providers = c.req.queries('provider') ?? [];
  return c.json(sealCandidates({ ...route, waitMs: 0 }, { clock, refusal }, providers), 200, headers);
}
