/** `GET` and `HEAD` under `/v1/registry`, answered from the isolate's view. */
import { Hono } from 'hono';
import { ApiError, methodNotAllowed } from '../../shared/openai/api-errors.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import {
  dependsOnTime,
  parseFilter,
  REGISTRY_VIEWS,
  type RegistryFilter,
  type RegistryViewName,
  registryView,
} from '../../shared/routing/registry-view.ts';
import { RequirementError } from '../../shared/routing/requirements.ts';
import type { Env } from '../env.ts';
import { authorizedRegistry, type ReadContext } from './authorize-registry-read.ts';
import { VisibleRegistry } from './views/visible-registry.ts';
import { watchRegistry } from './views/watch-registry.ts';

export const registryRoutes = new Hono<{ Bindings: Env }>();

for (const name of REGISTRY_VIEWS) {
  registryRoutes.get(`/${name}`, (c) => answer(c, name));
  registryRoutes.get(`/${name}/stream`, (c) => stream(c, name));
}
registryRoutes.all('/*', (c) => {
  if (c.req.method === 'GET') throw new ApiError('not_found', `There is no ${quoteForMessage(c.req.path)} here.`);
  throw methodNotAllowed(c.req.method, c.req.path, ['GET', 'HEAD']);
});

async function answer(c: ReadContext, name: RegistryViewName): Promise<Response> {
  const filter = filterOf(c);
  const { view, account } = await authorizedRegistry(c, c.env.REGISTRY_ACCESS === 'open');
  const { nodes } = new VisibleRegistry(account).of(view);
  // The ETag (RFC 9110 §8.8.3) is weak: it stands for the same registry, not the same bytes. A response that depends on
  // the clock has no tag.
  const tag = dependsOnTime(filter) ? undefined : `W/"${view.tag}"`;
  const headers = { 'cache-control': 'private, no-cache', ...(tag === undefined ? {} : { etag: tag }) };
  if (tag !== undefined && matches(c.req.header('if-none-match'), tag)) return c.body(null, 304, headers);
  return c.json(registryView(name, nodes, filter, Date.now()), 200, headers);
}

async function stream(c: ReadContext, name: RegistryViewName): Promise<Response> {
  const { filter, withLoads } = streamAsked(c);
  const { account } = await authorizedRegistry(c, c.env.REGISTRY_ACCESS === 'open');
  const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' };
  if (c.req.method === 'HEAD') return c.body(null, 200, headers);
  return c.body(watchRegistry(c.env, name, filter, account, withLoads), 200, headers);
}

/** Parses the filters of a stream, and `load=1`. */
function streamAsked(c: ReadContext): { filter: RegistryFilter; withLoads: boolean } {
  const query = new URL(c.req.url).searchParams;
  const load = query.get('load');
  query.delete('load');
  if (load !== null && load !== '1') throw new ApiError('invalid_requirement', 'load: must be 1, or omitted.');
  return { filter: filterOf(c, query), withLoads: load === '1' };
}

function filterOf(c: ReadContext, query = new URL(c.req.url).searchParams): RegistryFilter {
  try {
    return parseFilter(query);
  } catch (error) {
    if (error instanceof RequirementError) throw new ApiError(error.code, error.message);
    throw error;
  }
}

function matches(header: string | undefined, tag: string): boolean {
  return header?.split(',').some((one) => one.trim() === tag || one.trim() === '*') ?? false;
}
