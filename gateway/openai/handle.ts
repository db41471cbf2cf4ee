import { isSlower } from '../../shared/collections/timer.ts';
import { endpointById, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { quoted } from '../../shared/openai/quoted.ts';
import { Timing } from '../../shared/openai/timing.ts';
import { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import { PRIORITY_HEADER, readPriority } from '../../shared/proxy/routed-request.ts';
import { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { isTrusted, scopeOf, type Trust } from '../../shared/routing/trust.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { isRepeatable } from '../../shared/upstream/parsed-request.ts';
import { optsOut, requireEndpoint } from '../accounts/account.ts';
import { authenticate } from '../accounts/authenticate.ts';
import { touch } from '../accounts/last-used.ts';
import { forecastOf, type LimitReservation, reserve } from '../accounts/limit-reservation.ts';
import { isCounted, reasoningBudget } from '../accounts/reasoning.ts';
import { receiptOf } from '../accounts/receipt.ts';
import { settingsOf, timeoutsOf } from '../accounts/settings.ts';
import {
  knowsAll,
  type RequestedTrust,
  requestedTrust,
  requireTrust,
  TRUST_METADATA,
  trustOf,
} from '../accounts/trust.ts';
import { after } from '../after.ts';
import type { Env } from '../env.ts';
import { errorAnswer } from '../error-response.ts';
import type { HttpAnswer, HttpRequest } from '../http.ts';
import type { Background } from '../object-context.ts';
import { Note, type Sighting } from '../observe/note.ts';
import { busyNodes } from '../queue/busy.ts';
import { inTurn, longestWait, type QueuedRequest } from '../queue/in-turn.ts';
import { snapshots, type View } from '../registry/snapshot.ts';
import { requestIdOf } from '../request-id.ts';
import { chainOf } from '../routing/alias.ts';
import { requireMet, routeOf } from '../routing/route.ts';
import { recordRefusal, rowIfLeft } from '../usage/refused.ts';
import { takeBody } from './body.ts';
import { allowsContinuing, continuing } from './continue.ts';
import { discardBody } from './discard.ts';
import { type Delivery, type Errand, handOver, noCapacity } from './hand-over.ts';
import { headersToEngine } from './headers.ts';
import { deliver, deliverLate, PING_MS, type ResponseContext } from './respond.ts';
import { endsWithin, modelStarting, startOf } from './starting.ts';

/** The one path that every endpoint of the table takes. */
export async function handleOpenAI(request: HttpRequest, path: string, env: Env, ctx: Background): Promise<HttpAnswer> {
  const requestId = requestIdOf(request);
  const sighting: Sighting = { requestId, startedAt: Date.now() };
  const leaving = request.leaving ?? new ClientDisconnect(request.signal);
  const note = new Note(sighting, request, leaving, { env, ctx });
  try {
    return named(await forward(request, path, env, ctx, sighting, note, leaving), sighting);
  } catch (error) {
    note.refused(error);
    // Of a client that left, the queue or its node keeps the record.
    if (!leaving.left) recordRefusal(sighting, error, note.queuedMs, env, ctx);
    await discardBody(request);
    const { endpoint } = sighting;
    return named(errorAnswer(error, requestId, endpoint === undefined ? undefined : endpointById(endpoint)), sighting);
  }
}

/** With the request's id where its endpoint's clients look for it, too. */
function named(answer: HttpAnswer, { endpoint, requestId }: Sighting): HttpAnswer {
  const header = endpoint === undefined ? undefined : endpointById(endpoint)?.requestIdHeader;
  if (header !== undefined) answer.headers[header] = requestId;
  return answer;
}

async function forward(
  request: HttpRequest,
  path: string,
  env: Env,
  ctx: Background,
  sighting: Sighting,
  note: Note,
  leaving: ClientDisconnect,
): Promise<HttpAnswer> {
  const { requestId } = sighting;
  const timing = new Timing(Date.now());
  const given = request.headers.get('x-request-id') === requestId;
  const endpoint = findEndpoint(request.method, path);
  if (endpoint === undefined) throw new ApiError('not_found', `There is no ${quoted(path)} here.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(request.method, path, endpoint.methodNotAllowed);
  sighting.endpoint = endpoint.id;
  const now = Date.now();
  snapshots.locate(request);
  const current = snapshots.get(env, ctx, now, () => true);
  const { settings } = current instanceof Promise ? await current : current;
  const account = await authenticate(env, request, settings, now);
  sighting.account = account;
  requireEndpoint(account, endpoint);
  touch(account, env, ctx, now);
  const untracked = optsOut(account, request);
  sighting.untracked = untracked;
  const priority = readPriority(request.headers.get(PRIORITY_HEADER));
  const name = given ? crypto.randomUUID() : requestId;
  note.name = name;
  const { limits, keyId } = account;
  const intake = await takeBody(request, endpoint, env);
  const admittedAt = Date.now();
  timing.ingressDone(admittedAt);
  sighting.model = intake.model;
  sighting.streamed = intake.streaming;
  let reservation: LimitReservation | undefined;
  try {
    const before = chainOf(account, settings, intake);
    const budget = reasoningBudget(request, account, intake.unseen);
    const requested = requestedTrust(request, intake.metadata[TRUST_METADATA]);
    const found = viewFor([before.model, ...before.fallbacks], requested, env, ctx);
    const view = found instanceof Promise ? await found : found;
    // It may have brought what was just set.
    const chain = view.settings === settings ? before : chainOf(account, view.settings, intake);
    const models = [chain.model, ...chain.fallbacks];
    sighting.model = chain.model;
    const trust = trustOf(account, requested, view.settings);
    requireTrust(view, requested, trust);
    const route = routeOf(request, intake, chain, account, view.settings);
    requireMet(view.nodes, route, trust);
    const waitMs = longestWait(view.settings.queue, intake.streaming);
    const hopes = () => models.some((model) => hopesFor(view, model, trust));
    note.known = isKnown(view, chain.model);
    const start = startOf(view, models, trust, Date.now());
    if (start !== undefined && !endsWithin(start, waitMs)) throw modelStarting(start);
    requireKnown(view, models, waitMs > 0 ? hopes : () => false);
    const waiter = new QueueEntry({
      busyNodes,
      queues: waitMs > 0,
      hopes,
      repeatable: () => isRepeatable(intake),
      retriesMax: retriesMax(view, chain.model),
    });
    if (limits !== undefined && isCounted(limits)) {
      const forecast = forecastOf(request, endpoint, intake);
      reservation = await reserve(
        { env, ctx },
        { limits, keyId },
        { forecast, name, leaving, begun: () => waiter.attempts > 0 },
      );
    }
    timing.lookupDone(Date.now());
    const goesOn = intake.streaming && allowsContinuing(request, account);
    const receiptFor = (model: string) => receiptOf(account.seal, model, untracked, intake.sampling);
    const errand: Errand = {
      name,
      endpoint,
      intake,
      headers: headersToEngine(request, given ? requestId : undefined),
      receipt: receiptFor(chain.model),
      receiptFor,
      timeouts: timeoutsOf(view.settings, chain.model),
      view,
      route,
      trust,
      env,
      ctx,
      admittedAt,
      prefixes: account.prefixes && !untracked,
      departs: request.offloads === true && departs(intake) && !goesOn && reservation?.concurrent !== true,
      continues: goesOn,
      reasoningBudget: budget,
      waiter,
      onSuspect: (session, code) => {
        snapshots.suspect(session, Date.now(), code === 'gone');
        note.suspected();
      },
      note,
      signal: () => request.signal,
      leaving,
    };
    const context: ResponseContext = {
      requestId,
      endpoint,
      model: chain.fallbacks.length === 0 ? chain.model : undefined,
      timing,
      queuedMs: () => waiter.queuedMs,
      note,
      ctx,
      release: intake.release,
    };
    const waiting: QueuedRequest<Delivery> = {
      env,
      name,
      model: chain.model,
      account,
      priority,
      settings: view.settings.queue,
      streaming: intake.streaming,
      scope: () => `${scopeOf(trust)} ${route.demand.words}`,
      bytes: () => (intake.body.kind === 'kept' ? intake.body.bytes.length : 0),
      waiter,
      note,
      tryNodes: () => tryNodes(errand, ctx),
      ifLeft: () => rowIfLeft(sighting),
      signal: () => request.signal,
      leaving,
    };
    const handed = inTurn(waiting);
    const delivery = goesOn ? continuing(handed, errand, waiting) : handed;
    const late = intake.streaming && (await isSlower(delivery, PING_MS, after));
    const answer = late ? deliverLate(delivery, context) : deliver(await delivery, context);
    if (late) {
      // Told in-band: nobody settles it.
      void delivery.catch((error: unknown) => {
        reservation?.release(false);
        if (!leaving.left) recordRefusal(sighting, error, note.queuedMs, env, ctx);
      });
    }
    return reservation === undefined ? answer : reservation.until(answer);
  } catch (error) {
    intake.release();
    reservation?.release(false);
    throw error;
  }
}

/** What is needed to answer it is here: a client that still sends has not done with its connection. */
function departs({ streaming, body }: ParsedRequest): boolean {
  return streaming && body.kind === 'kept';
}

/** A view that knows model and providers. Where the one at hand does not, the registry is asked once: they may just have come. */
function viewFor(
  models: readonly string[],
  requested: RequestedTrust,
  env: Env,
  ctx: Background,
): View | Promise<View> {
  return snapshots.get(env, ctx, Date.now(), (view) => servesAny(view, models) && knowsAll(view, requested));
}

/** Asks the nodes that are known now: who waited looks again first. */
async function tryNodes(errand: Errand, ctx: Background): Promise<Delivery> {
  const { request, fallbacks } = errand.route;
  if (errand.waiter.queuedMs > 0) await viewFor([request.model, ...fallbacks], [], errand.env, ctx);
  return handOver(errand);
}

/** @throws ApiError 404 for models that nobody served lately; 503 for those that nobody serves now, unless they are waited for */
function requireKnown(view: View, models: readonly string[], hopes: () => boolean): void {
  if (servesAny(view, models)) return;
  const [model = ''] = models;
  const known = models.some((one) => isKnown(view, one));
  if (known && hopes()) return;
  if (known) throw noCapacity(model);
  throw new ApiError('model_not_found', `The model '${model}' does not exist here.`, { param: 'model' });
}

/** Whether a node may come back that such a request may go to: one of those was there, or the operator expects some. */
function hopesFor(view: View, model: string, trust: Trust): boolean {
  if (Object.hasOwn(view.settings.models, model)) return true;
  return view.model(model)?.all.some((entry) => isTrusted(trust, entry)) ?? false;
}

function isKnown(view: View, model: string): boolean {
  return view.model(model) !== undefined || Object.hasOwn(view.settings.models, model);
}

function servesAny(view: View, models: readonly string[]): boolean {
  return models.some((model) => view.model(model)?.all.some(({ state }) => state === 'SERVING') ?? false);
}

/** Attempts after the first. */
function retriesMax({ settings }: View, model: string): number {
  return settingsOf(settings, model).max_retries ?? settings.retries.maxRetries;
}
