/** The dashboard's files, under headers of ours. The runtime has them: static assets on Workers, a directory on plain workerd. */
import { Hono } from 'hono';
import { ApiError } from '../shared/openai/errors.ts';
import type { Env } from './env.ts';

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

/** Nothing from elsewhere, nothing inline. Images of a chat are the user's own, held by the page. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types dompurify',
].join('; ');

export const dashboardRoutes = new Hono<{ Bindings: Env }>();

dashboardRoutes.get('/', (c) => file(c.env, 'index.html', 'no-cache'));
// Their names change with what is in them.
dashboardRoutes.get('/assets/:name{[\\w.-]{1,100}}', (c) =>
  file(c.env, `assets/${c.req.param('name')}`, 'public, max-age=31536000, immutable'),
);

async function file(env: Pick<Env, 'ASSETS'>, path: string, caching: string): Promise<Response> {
  const type = TYPES[path.slice(path.lastIndexOf('.') + 1)];
  const found = type === undefined ? undefined : await env.ASSETS?.fetch(`https://assets/${path}`);
  if (type === undefined || !found?.ok) {
    await found?.body?.cancel();
    throw new ApiError('not_found', 'This is not here; the API is below /v1 and described at /docs.');
  }
  const headers = {
    'content-type': type,
    'cache-control': caching,
    'content-security-policy': POLICY,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
  };
  return new Response(found.body, { headers });
}
