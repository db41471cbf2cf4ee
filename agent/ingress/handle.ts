import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AttemptFailure } from '../../shared/asking/attempt.ts';
import { type Intake, isRepeatable } from '../../shared/asking/intake.ts';
import { isSlower } from '../../shared/asking/is-slower.ts';
import { PathError } from '../../shared/asking/path-error.ts';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { headersToEngine, REQUEST_ID_PATTERN } from '../../shared/openai/headers.ts';
import { Timing } from '../../shared/openai/timing.ts';
import { castsSuspicion } from '../../shared/routing/attempts.ts';
import type { Breakers } from '../../shared/routing/breaker.ts';
import { choose, type Question } from '../../shared/routing/choose.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import type { RetryBudget } from '../../shared/routing/retry-budget.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { Requests } from '../mesh/requests/requests.ts';
import { type Avoided, REFUSING_MS, SILENT_MS, UNREACHABLE_MS } from './avoided.ts';
import { discardBody, STRANGER_MAX_BYTES, takeBody } from './body.ts';
import type { Budget } from './budget.ts';
import { goingOn } from './continue.ts';
import { type Errand, handOver } from './hand-over.ts';
import type { IngressKey } from './key.ts';
import type { Registry } from './registry.ts';
import { after, deliver, deliverLate, sendError } from './respond.ts';
import { nobody, questionOf } from './route.ts';
import type { Running } from './running.ts';
import type { Strangers } from './strangers.ts';
import { answerView, isView } from './views.ts';
import type { Watchers } from './watchers.ts';

/** What answering a request needs of the ingress. */
export interface Desk {
  key: IngressKey;
  strangers: Strangers;
  budget: Budget;
  avoided: Avoided;
  breakers: Breakers;
  retries: RetryBudget;
  running: Running;
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
    if (error instanceof PathError || response.destroyed) return void response.destroy(); // the client left
    if (!(error instanceof ApiError)) desk.log(`ingress: ${error instanceof Error ? error.stack : String(error)}`);
    const stranger = error instanceof ApiError && error.code === 'invalid_api_key';
    const readAll = await discardBody(request, stranger ? STRANGER_MAX_BYTES : undefined);
    if (!readAll && !response.headersSent) response.setHeader('connection', 'close');
    sendError(response, error, requestId);
  }
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
  if (endpoint === undefined) throw new ApiError('not_found', `There is no ${path.slice(0, 200)} here.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(request.method ?? '', path, endpoint.methodNotAllowed);
  const over = desk.running.begin();
  try {
    const intake = await takeBody(request, endpoint, desk.budget);
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
  throw new ApiError('not_found', `There is no ${url.slice(0, 200)} here.`);
}

interface Case extends Ids {
  request: IncomingMessage;
  response: ServerResponse;
  desk: Desk;
  endpoint: Endpoint;
  intake: Intake;
  timing: Timing;
}

async function forward(one: Case): Promise<void> {
  const { request, response, desk, endpoint, intake, timing, requestId } = one;
  const { trust, nodes } = desk;
  const isAvoided = () => avoidance(desk, isRepeatable(intake));
  const question = questionOf({ headers: request.headers, intake, trust, isAvoided });
  timing.lookupDone(Date.now());
  const errand: Errand = {
    name: one.given === undefined ? requestId : randomUUID(),
    endpoint,
    intake,
    headers: headersToEngine((name) => headerOf(request, name), one.given),
    receipt: intake.model,
    choose: (tried) => choose(nodes, question(), tried),
    nobody: () => nobody(nodes, question()),
    ask: desk.ask,
    left: () => response.destroyed,
    whenLeft: (call) => response.once('close', call),
    breakers: desk.breakers,
    mayRetry: () => desk.retries.take(Date.now()),
    onFailure: ({ session }, code) => remember(desk.avoided, session, code),
  };
  const { pingMs } = desk;
  const context = { response, requestId, endpoint, model: intake.model, timing, pingMs, now: () => Date.now() };
  desk.retries.asked(Date.now());
  const handed = handOver(errand);
  const goesOn = intake.streaming && headerOf(request, 'x-otela-resume') === '1';
  const going = { errand, nodes: desk.registry.index, budget: desk.budget };
  const pending = goesOn ? handed.then((delivery) => goingOn(delivery, going)) : handed;
  pending.then(intake.release, intake.release);
  if (intake.streaming && (await isSlower(pending, pingMs, after))) return deliverLate(pending, context);
  const delivery = await pending;
  desk.avoided.delete(delivery.choice.node.session);
  await deliver(delivery, context);
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
