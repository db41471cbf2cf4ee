/** What comes to the ingress: `GET` views of the registry, and requests to models, which take the pipeline of `shared/proxy`. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { quoted } from '../../shared/openai/quoted.ts';
import { discardBody } from '../../shared/proxy/discard-body.ts';
import { errorResponse } from '../../shared/proxy/error-response.ts';
import { handle as proxy } from '../../shared/proxy/handle.ts';
import { ownRequestId } from '../../shared/proxy/request-id.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { IngressHost } from './ingress-host.ts';
import { IngressRequest } from './ingress-request.ts';
import type { IngressKey } from './key.ts';
import type { Registry } from './registry.ts';
import type { Running } from './running.ts';
import { answerSeal, SEAL_PATH } from './seal-view.ts';
import type { Strangers } from './strangers.ts';
import { answerView, isView } from './views.ts';
import type { Watchers } from './watchers.ts';
import { writeResponse } from './write-response.ts';

/** Of a client that has shown no key, so much of a refused body is read. */
const STRANGER_MAX_BYTES = 1024 * 1024;

/** What answering a request needs of the ingress. */
export interface Desk {
  key: IngressKey;
  strangers: Strangers;
  running: Running;
  watchers: Watchers;
  registry: Registry;
  host: IngressHost;
  /** Of requests without lists of their own. */
  trust(): Trust;
  log(line: string): void;
}

/** Everything that comes to the ingress takes this path. Never rejects. */
export async function handle(message: IncomingMessage, response: ServerResponse, desk: Desk): Promise<void> {
  const url = urlOf(message);
  const request = new IngressRequest(message, response, url?.pathname ?? '');
  try {
    desk.key.require(message.headers); // before anything is said about what there is
    desk.strangers.greet(message.socket);
    if (url === null) throw new ApiError('not_found', `There is no ${quoted(message.url ?? '')} here.`);
    if (isView(url.pathname)) return view(message, response, url, desk, requestIdOf(request));
    if (url.pathname === SEAL_PATH) {
      const answer = answerSeal(request, url.searchParams, desk.host, requestIdOf(request));
      return await writeResponse(message, response, answer);
    }
    const over = desk.running.begin();
    await proxy(request, desk.host)
      .then((answer) => writeResponse(message, response, answer))
      .finally(over);
  } catch (error) {
    await refuse(error, { message, response, request, desk });
  }
}

function view(message: IncomingMessage, response: ServerResponse, url: URL, desk: Desk, requestId: string): void {
  const { registry, watchers } = desk;
  answerView(message, response, url, { registry, watchers, requestId, trust: desk.trust(), now: Date.now() });
}

interface Refused {
  message: IncomingMessage;
  response: ServerResponse;
  request: IngressRequest;
  desk: Desk;
}

async function refuse(error: unknown, { message, response, request, desk }: Refused): Promise<void> {
  if (!(error instanceof ApiError)) desk.log(`ingress: ${error instanceof Error ? error.stack : String(error)}`);
  const stranger = error instanceof ApiError && error.code === 'invalid_api_key';
  await discardBody(request.body, desk.host, stranger ? STRANGER_MAX_BYTES : undefined);
  // Where the head has gone out there is nothing left to say.
  if (response.headersSent) return void response.destroy();
  await writeResponse(message, response, errorResponse(error, requestIdOf(request), endpointOf(request)));
}

function requestIdOf(request: IngressRequest): string {
  return ownRequestId(request) ?? randomUUID();
}

/** For the form of an error. */
function endpointOf({ method, path }: IngressRequest): Endpoint | undefined {
  const endpoint = findEndpoint(method, path);
  return endpoint === undefined || 'methodNotAllowed' in endpoint ? undefined : endpoint;
}

/** The host is this ingress whatever the client calls it. */
function urlOf({ url = '/' }: IncomingMessage): URL | null {
  return URL.parse(url.startsWith('/') ? `http://ingress${url}` : url);
}
