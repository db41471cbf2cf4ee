import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AttemptFailure } from '../../shared/asking/attempt.ts';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { headersToEngine, REQUEST_ID_PATTERN } from '../../shared/openai/headers.ts';
import { Timing } from '../../shared/openai/timing.ts';
import { castsSuspicion } from '../../shared/routing/attempts.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import { type Attempt, PathError } from '../mesh/requests/attempt.ts';
import type { Requests } from '../mesh/requests/requests.ts';
import { type Avoided, SILENT_MS, UNREACHABLE_MS } from './avoided.ts';
import { discardBody, type Intake, takeBody } from './body.ts';
import type { Budget } from './budget.ts';
import { choose, type Nodes } from './choose.ts';
import { type Errand, handOver, noCapacity } from './hand-over.ts';
import type { IngressKey } from './key.ts';
import { deliver, deliverLate, PING_MS, sendError } from './respond.ts';
import { refuseUnknownRestrictions, requestedTrust, trustFor } from './restrictions.ts';
import { answerView, isView } from './views.ts';

/** What answering a request needs of the ingress. */
export interface Desk {
  key: IngressKey;
  budget: Budget;
  avoided: Avoided;
  nodes(): Nodes;
  /** `lists`: those that a request brings. */
  trust(lists: readonly (readonly string[])[]): Trust;
  ask: Requests['ask'];
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
    const readAll = await discardBody(request);
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
  const path = pathOf(request);
  if (isView(path)) {
    return answerView(request, response, path, {
      nodes: desk.nodes(),
      trust: desk.trust([]),
      requestId: ids.requestId,
    });
  }
  const endpoint = findEndpoint(request.method ?? '', path);
  if (endpoint === undefined) throw new ApiError('not_found', `There is no ${path.slice(0, 200)} here.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(request.method ?? '', path, endpoint.methodNotAllowed);
  refuseUnknownRestrictions(request.headers);
  const intake = await takeBody(request, endpoint, desk.budget);
  try {
    timing.ingressDone(Date.now());
    await forward({ request, response, desk, endpoint, intake, timing, ...ids });
  } finally {
    intake.release();
  }
}

/** Without the query; the host is this ingress whatever the client calls it. */
function pathOf({ url = '/' }: IncomingMessage): string {
  const end = url.indexOf('?');
  return end < 0 ? url : url.slice(0, end);
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
  const trust = trustFor(desk.trust(requestedTrust(request.headers, intake.metadata)));
  requireServed(desk.nodes(), intake.model);
  timing.lookupDone(Date.now());
  let running: Attempt | undefined;
  const onClose = () => running?.cancel();
  response.once('close', onClose);
  const errand: Errand = {
    name: one.given === undefined ? requestId : randomUUID(),
    endpoint,
    intake,
    headers: headersToEngine((name) => headerOf(request, name), one.given),
    choose: (tried) => {
      const { avoided } = desk;
      const question = { model: intake.model, trust, tried, avoided, now: Date.now(), random: Math.random };
      return choose(desk.nodes(), question);
    },
    ask: desk.ask,
    left: () => response.destroyed,
    onAttempt: (attempt) => {
      running = attempt;
      if (response.destroyed) attempt.cancel();
    },
    onFailure: ({ session }, code) => remember(desk.avoided, session, code),
  };
  const context = { response, requestId, endpoint, model: intake.model, timing, now: () => Date.now() };
  const pending = handOver(errand);
  if (intake.streaming && (await isSlower(pending, PING_MS))) return deliverLate(pending, context);
  const delivery = await pending;
  desk.avoided.delete(delivery.node.session);
  intake.release();
  await deliver(delivery, context);
}

function remember(avoided: Avoided, session: string, code: AttemptFailure): void {
  if (code === 'unreachable') avoided.add(session, Date.now() + UNREACHABLE_MS);
  else if (castsSuspicion(code)) avoided.add(session, Date.now() + SILENT_MS);
}

/** @throws ApiError 404 for a model that nobody is known to have served, 503 for one that nobody serves now */
function requireServed(nodes: Nodes, model: string): void {
  const known = nodes.model(model);
  if (known === undefined) {
    throw new ApiError('model_not_found', `The model '${model}' does not exist here.`, { param: 'model' });
  }
  if (known.ready.length === 0 && known.suspected.length === 0) throw noCapacity(model);
}

function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Whether `work` is still unfinished after `ms`. */
async function isSlower(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, ms, true);
  });
  const done = work.then(
    () => false,
    () => false,
  );
  const slower = await Promise.race([done, late]);
  clearTimeout(timer);
  return slower;
}
