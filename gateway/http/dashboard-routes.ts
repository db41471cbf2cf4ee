/**
 * Serves the dashboard's files with this gateway's headers. The host stores the files: static assets on Workers, a
 * directory on the Node host.
 */
import { Hono } from 'hono';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  woff2: 'font/woff2',
};

/** Types of files next to which the build writes a `.br` and a `.gz` file. */
const COMPRESSED: ReadonlySet<string> = new Set(['js', 'mjs', 'css', 'svg']);

/**
 * Content security policy: nothing from other origins, nothing inline. Images in a chat come from the user's files and
 * are in the page's memory. The only worker reads PDFs.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "img-src 'self' data: blob:",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types otela-worker',
].join('; ');

export const dashboardRoutes = new Hono<{ Bindings: Env }>();

dashboardRoutes.get('/', (c) => dashboardPage(c.env));
// Files below /assets may be cached forever, because their names change with their content.
dashboardRoutes.get('/assets/:name{[\\w.-]{1,100}}', (c) => {
  const encodings = c.req.header('accept-encoding') ?? null;
  return file(c.env, `assets/${c.req.param('name')}`, 'public, max-age=31536000, immutable', encodings);
});

/**
 * Returns the page, which also shows the API reference at `/docs`.
 * @throws ApiError 404 if this gateway has no dashboard
 */
export function dashboardPage(env: Pick<Env, 'ASSETS'>): Promise<Response> {
  return file(env, 'index.html', 'no-cache', null);
}

/** @throws ApiError 404 not_found */
async function file(env: Pick<Env, 'ASSETS'>, path: string, caching: string, accepted: string | null) {
  const ending = path.slice(path.lastIndexOf('.') + 1);
  const type = TYPES[ending];
  const encoding = COMPRESSED.has(ending) ? encodingOf(accepted) : undefined;
  const stored = encoding === undefined ? path : `${path}.${SUFFIX[encoding]}`;
  const found = type === undefined ? undefined : await env.ASSETS?.fetch(`https://assets/${stored}`);
  if (type === undefined || !found?.ok) {
    await found?.body?.cancel();
    throw new ApiError('not_found', 'There is no such page. The API is below /v1 and described at /docs.');
  }
  const headers = {
    'content-type': type,
    'cache-control': caching,
    'content-security-policy': POLICY,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    ...(COMPRESSED.has(ending) && { vary: 'accept-encoding' }),
    ...(encoding !== undefined && { 'content-encoding': encoding }),
  };
  // `manual`: the bytes are already compressed.
  return new Response(found.body, { headers, ...(encoding !== undefined && { encodeBody: 'manual' as const }) });
}

const SUFFIX = { br: 'br', gzip: 'gz' } as const;

/**
 * Returns the encoding that the browser accepts and that makes the file smallest. In `accept-encoding` (RFC 9110
 * §12.5.3) the weight 0 refuses an encoding; other weights are ignored here.
 */
function encodingOf(accepted: string | null): keyof typeof SUFFIX | undefined {
  const takes = (name: string) =>
    new RegExp(`(?:^|[\\s,])${name}(?!\\s*;\\s*q=0(?:\\.0*)?(?:[\\s,]|$))(?=[\\s,;]|$)`).test(accepted ?? '');
  return takes('br') ? 'br' : takes('gzip') ? 'gzip' : undefined;
}
