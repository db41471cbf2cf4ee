import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RegistryEntry, ServedModel } from '../../shared/lattice/node-record.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/api-errors.ts';
import { pathNotFound } from '../../shared/openai/endpoints.ts';
import { findModelStart, modelStartingError } from '../../shared/proxy/loading-model.ts';
import {
  dependsOnTime,
  parseFilter,
  REGISTRY_VIEWS,
  type RegistryFilter,
  registryView,
} from '../../shared/routing/registry-view.ts';
import { type ModelDetails, modelDetails } from '../../shared/routing/replica-kinds.ts';
import { RequirementError } from '../../shared/routing/requirements.ts';
import { isTrusted, type Trust } from '../../shared/routing/trusted-providers.ts';
import type { AgentRegistryView } from './agent-registry-view.ts';
import type { RegistryChangeStreams } from './registry-change-streams.ts';

const MODELS = '/v1/models';
const REGISTRY = '/v1/registry';

/** What answering a read-only request needs. */
interface ViewServices {
  registry: AgentRegistryView;
  trust: Trust;
  requestId: string;
  watchers: RegistryChangeStreams;
  now: number;
}

/** True if `path` is one of the read-only routes. */
export function isRegistryRoute(path: string): boolean {
  return [MODELS, REGISTRY].some((root) => path === root || path.startsWith(`${root}/`));
}

/** @throws ApiError 400, 404, 405, 503 */
export function answerRegistryRequest(
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
  showing: ViewServices,
): void {
  const path = url.pathname;
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw methodNotAllowed(request.method ?? '', path, ['GET', 'HEAD']);
  }
  if (!path.startsWith(REGISTRY)) return sendJson(request, response, showing, modelsBody(path, showing));
  const name = REGISTRY_VIEWS.find((known) => [known, `${known}/stream`].includes(path.slice(REGISTRY.length + 1)));
  if (name === undefined) throw pathNotFound(path);
  const filter = filterOf(url);
  if (path.endsWith('/stream')) return showing.watchers.open(request, response, { name, filter, showing });
  const { registry, now } = showing;
  // The tag is weak (RFC 9110 §8.8.3): equal tags mean the same registry, not the same bytes. A view that depends on
  // the clock has no tag.
  const tag = dependsOnTime(filter) ? undefined : `W/"${registry.version}"`;
  const headers = { 'cache-control': 'private, no-cache', ...(tag === undefined ? {} : { etag: tag }) };
  if (tag !== undefined && matches(request.headers['if-none-match'], tag)) {
    response.writeHead(304, { ...headers, 'x-request-id': showing.requestId }).end();
    return;
  }
  sendJson(request, response, showing, registryView(name, registry.index, filter, now), headers);
}

function filterOf(url: URL): RegistryFilter {
  try {
    return parseFilter(url.searchParams);
  } catch (error) {
    if (error instanceof RequirementError) throw new ApiError(error.code, error.message);
    throw error;
  }
}

function matches(header: string | undefined, tag: string): boolean {
  return header?.split(',').some((one) => one.trim() === tag || one.trim() === '*') ?? false;
}

interface Model extends ModelDetails {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
}

/** Models that nodes can serve now, sorted by name. */
function servedModels({ registry, trust }: ViewServices): Model[] {
  const models = new Map<string, { entry: RegistryEntry; replicas: ServedModel[] }>();
  for (const entry of registry.index.entries()) {
    if (entry.state !== 'SERVING' || entry.suspected || !isTrusted(trust, entry)) continue;
    for (const replica of entry.models) {
      if (replica.state !== 'ready') continue;
      const model = models.get(replica.id) ?? { entry, replicas: [] };
      model.replicas.push(replica);
      models.set(replica.id, model);
    }
  }
  const listed = [...models].map(([id, { entry, replicas }]): Model => {
    const details = modelDetails(id, replicas);
    return { id, object: 'model', created: secondsOf(entry), owned_by: entry.provider, ...details };
  });
  return listed.sort((a, b) => (a.id < b.id ? -1 : 1));
}

function secondsOf({ joined_at }: RegistryEntry): number {
  return Math.floor(Date.parse(joined_at) / 1000);
}

function modelsBody(path: string, showing: ViewServices): unknown {
  const models = servedModels(showing);
  if (path === MODELS) return { object: 'list', data: models };
  const id = decoded(path.slice(MODELS.length + 1));
  const model = models.find((served) => served.id === id);
  if (model !== undefined) return model;
  const start = findModelStart(showing.registry.index, [id], showing.trust, showing.now);
  if (start !== undefined) throw modelStartingError(start);
  throw new ApiError('model_not_found', `The model '${id.slice(0, 256)}' does not exist here.`, { param: 'model' });
}

/** A model's name may arrive with raw or with encoded slashes. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function sendJson(
  request: IncomingMessage,
  response: ServerResponse,
  { requestId }: ViewServices,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const json = JSON.stringify(body);
  response.writeHead(200, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(json),
    'x-request-id': requestId,
    ...headers,
  });
  response.end(request.method === 'HEAD' ? undefined : json);
}
