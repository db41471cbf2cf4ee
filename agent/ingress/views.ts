import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { isTrusted, type Trust } from '../../shared/routing/trust.ts';
import type { Nodes } from './choose.ts';

interface Model {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
}

/** Models that a request could be served with now, by name. */
function servedModels(nodes: Nodes, trust: Trust): Model[] {
  const models = new Map<string, Model>();
  for (const entry of nodes.entries()) {
    if (entry.state !== 'SERVING' || entry.suspected || !isTrusted(trust, entry)) continue;
    for (const { id, state } of entry.models) {
      if (state !== 'ready' || models.has(id)) continue;
      models.set(id, { id, object: 'model', created: secondsOf(entry), owned_by: entry.provider });
    }
  }
  return [...models.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}

function secondsOf({ joined_at }: RegistryEntry): number {
  return Math.floor(Date.parse(joined_at) / 1000);
}

const MODELS = '/v1/models';

/** Whether `path` is one of the read-only ones. */
export function isView(path: string): boolean {
  return path === MODELS || path.startsWith(`${MODELS}/`);
}

/** @throws ApiError 404, 405 */
export function answerView(request: IncomingMessage, response: ServerResponse, path: string, view: View): void {
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw methodNotAllowed(request.method ?? '', path, ['GET', 'HEAD']);
  }
  sendJson(request, response, view.requestId, bodyOf(path, view));
}

export interface View {
  nodes: Nodes;
  trust: Trust;
  requestId: string;
}

function bodyOf(path: string, { nodes, trust }: View): unknown {
  const models = servedModels(nodes, trust);
  if (path === MODELS) return { object: 'list', data: models };
  const id = decoded(path.slice(MODELS.length + 1));
  const model = models.find((served) => served.id === id);
  if (model === undefined) {
    throw new ApiError('model_not_found', `The model '${id}' does not exist here.`, { param: 'model' });
  }
  return model;
}

/** Slashes of a model's name come raw or encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function sendJson(request: IncomingMessage, response: ServerResponse, requestId: string, body: unknown): void {
  const json = JSON.stringify(body);
  response.writeHead(200, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(json),
    'x-request-id': requestId,
  });
  response.end(request.method === 'HEAD' ? undefined : json);
}
