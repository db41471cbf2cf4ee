import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isSlower } from '../../shared/collections/timer.ts';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { headersToEngine, REQUEST_ID_PATTERN } from '../../shared/openai/headers.ts';
import { quoted } from '../../shared/openai/quoted.ts';
import { Timing } from '../../shared/openai/timing.ts';
import type { BodyMemory } from '../../shared/proxy/body-memory.ts';
import { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { castsSuspicion, RETRIES_MAX } from '../../shared/routing/attempts.ts';
import type { Breakers } from '../../shared/routing/breaker.ts';
import { choose, type Question } from '../../shared/routing/choose.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import type { RetryBudget } from '../../shared/routing/retry-budget.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import type { AttemptFailure } from '../../shared/upstream/attempt.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import type { ByteBudget } from '../../shared/upstream/byte-budget.ts';
import { isRepeatable, type ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import { after } from '../after.ts';
import type { Requests } from '../mesh/requests/requests.ts';
import { type Avoided, REFUSING_MS, SILENT_MS, UNREACHABLE_MS } from './avoided.ts';
import { discardBody, STRANGER_MAX_BYTES, takeBody } from './body.ts';
import { goingOn } from './continue.ts';
import { type Delivery, type Errand, handOver, isRefusal } from './hand-over.ts';
import type { IngressKey } from './key.ts';
import type { PolicyFor } from './policies.ts';
import type { Queued, Queues } from './queues.ts';
import type { Registry } from './registry.ts';
import { deliver, deliverLate, sendError } from './respond.ts';
import { nobody, routeOf } from './route.ts';
import type { Running } from './running.ts';
import type { Strangers } from './strangers.ts';
import { answerView, isView } from './views.ts';
import type { Watchers } from './watchers.ts';

/** What answering a request needs of the ingress. */
export interface Desk {
  key: IngressKey;
  strangers: Strangers;
  budget: ByteBudget;
  /** Bodies on their way in. */
  uploads: BodyMemory;
  avoided: Avoided;
  breakers: Breakers;
  retries: RetryBudget;
  running: Running;
  queues: Queues;
  policyFor: PolicyFor;
  watchers: Watchers;
  pingMs: number;
  registry: Registry;
  nodes: NodeIndex;
  /** `lists`: those that a request brings. */
  trust(lists: readonly (readonly string[])[]): Trust;
  ask: Requests['ask'];
  log(line: string): void;
}

/** Everything that comes to the ingress takes this path. Never rejects. */
export async function handle(request: IncomingMessage, response: ServerResponse, desk: Desk): Promise<void> {
  const given = request.headers['x-request-id'];
  const own = typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : undefined;
  const requestId = own ?? randomUUID();
  try {
    await answer(request, response, desk, { requestId, given: own });
  } catch (error) {
    if (error instanceof AttemptError || response.destroyed) return void response.destroy(); // the client left
    if (!(error instanceof ApiError)) desk.log(`ingress: ${error instanceof Error ? error.stack : String(error)}`);
    const stranger = error instanceof ApiError && error.code === 'invalid_api_key';
    const readAll = await discardBody(request, stranger ? STRANGER_MAX_BYTES : undefined);
    if (!readAll && !response.headersSent) response.setHeader('connection', 'close');
    sendError(response, error, requestId, endpointOf(request));
  }
}

/** Which it was, for the form of an error; its path may be no URL at all. */
function endpointOf(request: IncomingMessage): Endpoint | undefined {
  const endpoint = findEndpoint(request.method ?? '', request.url?.split('?', 1)[0] ?? '');
  return endpoint === undefined || 'methodNotAllowed' in endpoint ? undefined : endpoint;
}

interface Ids {
  requestId: string;
  /** The client's own. */
  given: string | undefined;
}

async function answer(request: IncomingMessage, response: ServerResponse, desk: Desk, ids: Ids): Promise<void> {
  const timing = new Timing(Date.now());
  desk.key.require(request.headers); // before anything is said about what there is
  desk.strangers.greet(request.socket);
  const url = urlOf(request);
  const path = url.pathname;
  if (isView(path)) {
    const { registry, watchers } = desk;
    const { requestId } = ids;
    return answerView(request, response, url, {
      registry,
      watchers,
      requestId,
      trust: desk.trust([]),
      now: Date.now(),
    });
  }
  const endpoint = findEndpoint(request.method ?? '', path);
  if (endpoint === undefined) throw new ApiError('not_found', `There is no ${quoted(path)} here.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(request.method ?? '', path, endpoint.methodNotAllowed);
  if (endpoint.requestIdHeader !== undefined) response.setHeader(endpoint.requestIdHeader, ids.requestId);
  const over = desk.running.begin();
  try {
    const intake = await takeBody(request, endpoint, desk);
    timing.ingressDone(Date.now());
    await forward({ request, response, desk, endpoint, intake, timing, ...ids }).finally(intake.release);
  } finally {
    over();
  }
}

/** The host is this ingress whatever the client calls it. */
function urlOf({ url = '/' }: IncomingMessage): URL {
  const parsed = URL.parse(url.startsWith('/') ? `http://ingress${url}` : url);
  if (parsed !== null) return parsed;
  throw new ApiError('not_found', `There is no ${quoted(url)} here.`);
}

interface Case extends Ids {
  request: IncomingMessage;
  response: ServerResponse;
  desk: Desk;
  endpoint: Endpoint;
  intake: ParsedRequest;
  timing: Timing;
}

async function forward(one: Case): Promise<void> {
  const { request, response, desk, endpoint, intake, timing, requestId } = one;
  const { trust: decide, nodes, queues, policyFor } = desk;
  const { model, streaming } = intake;
  const isAvoided = () => avoidance(desk, isRepeatable(intake));
  const among: Question['among'] = (candidates) => waiter.among(candidates, Date.now());
  const route = routeOf({ headers: request.headers, intake, trust: decide, policyFor, isAvoided, among });
  const { question, trust, priority } = route;
  const waiter = new QueueEntry({
    busyNodes: queues.busyNodes,
    queues: queues.longestWait(streaming) > 0,
    hopes: (error) => !isRefusal(error) && (nodes.model(model)?.all.some((entry) => isTrusted(trust, entry)) ?? false),
    repeatable: () => isRepeatable(intake),
    retriesMax: RETRIES_MAX,
  });
  timing.lookupDone(Date.now());
  const name = one.given === undefined ? requestId : randomUUID();
  const left = () => response.destroyed;
  const whenLeft = manyListeners(response);
  const errand: Errand = {
    name,
    endpoint,
    intake,
    headers: headersToEngine((header) => headerOf(request, header), one.given),
    receipt: model,
    choose: (tried) => choose(nodes, question(), tried),
    nobody: () => nobody(nodes, question()),
    ask: desk.ask,
    left,
    whenLeft,
    breakers: desk.breakers,
    mayRetry: () => desk.retries.take(Date.now()),
    onFailure: ({ session }, code) => remember(desk.avoided, session, code),
    onEnd: ({ session }) => queues.ended(session),
    waiter,
  };
  const { pingMs } = desk;
  const clocks = { timing, queuedMs: () => waiter.queuedMs, pingMs, now: () => Date.now() };
  const context = { response, requestId, endpoint, model, ...clocks };
  desk.retries.asked(Date.now());
  const waiting: Queued<Delivery> = {
    name,
    model,
    scope: route.scope,
    client: request.socket.remoteAddress ?? '',
    priority,
    streaming,
    waiter,
    tryNodes: () => handOver(errand),
    left,
    whenLeft,
  };
  const handed = queues.inTurn(waiting);
  const goesOn = streaming && headerOf(request, 'x-otela-resume') === '1';
  const going = { errand, waiting, nodes: desk.registry.index, trust, budget: desk.budget, queues, pingMs };
  const pending = goesOn ? handed.then((delivery) => goingOn(delivery, going)) : handed;
  pending.then(intake.release, intake.release);
  if (streaming && (await isSlower(pending, pingMs, after))) return deliverLate(pending, context);
  const delivery = await pending;
  desk.avoided.delete(delivery.choice.node.session);
  await deliver(delivery, context);
}

/** A response warns of more than ten listeners; each attempt, each question and each wait adds one. */
function manyListeners(response: ServerResponse): Errand['whenLeft'] {
  const calls: (() => void)[] = [];
  response.once('close', () => {
    for (const call of calls) call();
  });
  return (call) => calls.push(call);
}

/** Whom to pass over while there are others: those that did not answer lately, and those that fail. */
function avoidance({ avoided, breakers }: Desk, mayProbe: boolean): Question['isAvoided'] {
  const now = Date.now();
  const isFailing = breakers.avoided(now, mayProbe);
  if (avoided.size === 0) return isFailing;
  return (node) => avoided.has(node.session, now) || (isFailing?.(node) ?? false);
}

function remember(avoided: Avoided, session: string, code: AttemptFailure): void {
  if (code === 'refused') avoided.add(session, Date.now() + REFUSING_MS);
  else if (code === 'unreachable') avoided.add(session, Date.now() + UNREACHABLE_MS);
  else if (castsSuspicion(code)) avoided.add(session, Date.now() + SILENT_MS);
}

function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
