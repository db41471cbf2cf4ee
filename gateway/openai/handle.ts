import { findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { Timing } from '../../shared/openai/timing.ts';
import { authenticate } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { snapshots, type View } from '../registry/snapshot.ts';
import { type Intake, takeBody } from './body.ts';
import { discardBody } from './discard.ts';
import { type Errand, handOver, noCapacity } from './hand-over.ts';
import { headersToEngine } from './headers.ts';
import { requestIdOf } from './request-id.ts';
import { deliver, deliverLate, errorResponse, isSlower, PING_MS, type ResponseContext } from './respond.ts';

type Context = Pick<ExecutionContext, 'waitUntil'>;

/** The one path that every endpoint of the table takes. */
export async function handleOpenAI(request: Request, path: string, env: Env, ctx: Context): Promise<Response> {
  const requestId = requestIdOf(request);
  try {
    return await forward(request, path, env, ctx, requestId);
  } catch (error) {
    await discardBody(request);
    return errorResponse(error, requestId);
  }
}

async function forward(request: Request, path: string, env: Env, ctx: Context, requestId: string): Promise<Response> {
  const timing = new Timing(Date.now());
  const given = request.headers.get('x-request-id') === requestId;
  const endpoint = findEndpoint(request.method, path);
  if (endpoint === undefined) throw new ApiError('not_found', `There is no ${path} here.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(request.method, path, endpoint.methodNotAllowed);
  const now = Date.now();
  snapshots.locate(request);
  const current = snapshots.get(env, ctx, now, () => true);
  const revoked = (current instanceof Promise ? await current : current).revoked;
  const account = await authenticate(env, request, revoked, now);
  const intake = await takeBody(request, endpoint, env);
  timing.ingressDone(Date.now());
  try {
    const view = await viewFor(intake, env, ctx);
    timing.lookupDone(Date.now());
    const errand: Errand = {
      name: given ? crypto.randomUUID() : requestId,
      endpoint,
      intake,
      headers: headersToEngine(request, given ? requestId : undefined),
      receipt: account.keyId,
      view,
      env,
      onSuspect: (session) => snapshots.suspect(session, Date.now()),
      signal: request.signal,
    };
    const context: ResponseContext = { requestId, endpoint, model: intake.model, timing, release: intake.release };
    const delivery = handOver(errand);
    if (intake.streaming && (await isSlower(delivery, PING_MS))) return deliverLate(delivery, context);
    return deliver(await delivery, context);
  } catch (error) {
    intake.release();
    throw error;
  }
}

/** A view that knows the model. Where the one at hand does not, the registry is asked once: it may just have come. */
async function viewFor({ model }: Intake, env: Env, ctx: Context): Promise<View> {
  const view = await snapshots.get(env, ctx, Date.now(), (known) => serves(known, model));
  if (view.model(model) !== undefined || view.settings.models[model] !== undefined) {
    if (!serves(view, model)) throw noCapacity(model);
    return view;
  }
  throw new ApiError('model_not_found', `The model '${model}' does not exist here.`, { param: 'model' });
}

function serves(view: View, model: string): boolean {
  return view.model(model)?.all.some(({ state }) => state === 'SERVING') ?? false;
}
