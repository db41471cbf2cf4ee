/** `/openapi.json` and `/docs`. Both are generated from the tables that define the routes, so they always match. */
import { Hono } from 'hono';
import { ApiError, ERROR_KINDS } from '../../../shared/openai/api-errors.ts';
import { ENDPOINTS, REALTIME, STORED_RESPONSE_ENDPOINTS } from '../../../shared/openai/endpoints.ts';
import { BATCH_ROUTES } from '../../batch/batch-openapi.ts';
import type { Env } from '../../env.ts';
import { FACTORY_ROUTES } from '../../factory/factory-openapi.ts';
import { FILE_ROUTES } from '../../files/file-openapi.ts';
import { basePathOf } from '../../http/base-path.ts';
import { dashboardPage } from '../../http/dashboard-routes.ts';
import type { AdminRoute } from '../admin-route.ts';
import { ADMIN_ROUTES } from '../admin-routes.ts';
import { IDEMPOTENCY_KEY } from '../apply-change.ts';
import { llmsText } from './llms-text.ts';
import {
  contentOf,
  describedOperation,
  ERROR,
  JSON_TYPE,
  type Operation,
  openPath,
  pathParameters,
  queryParameters,
  schemaOf,
} from './operation.ts';
import { readOperations } from './read-only-operations.ts';
import { REQUEST_EXAMPLES } from './request-examples.ts';

const IDEMPOTENCY = {
  name: 'idempotency-key',
  in: 'header',
  required: false,
  description:
    'A repeated request with the same key within a day returns the object that the first request created, without its secret.',
  schema: { type: 'string', pattern: IDEMPOTENCY_KEY.source, examples: ['6f1c3f0e'] },
};

function adminOperation(route: AdminRoute): Operation {
  const { method, path, params, summary, role, login, scope, body, query, answer } = route;
  const open = `/admin${openPath(path)}`;
  const { status = method === 'post' ? 201 : 200 } = route;
  const creates = status === 201;
  const content = contentOf(answer);
  const again = creates && {
    '200': { description: 'Already created by an earlier request.', ...contentOf(route.again ?? answer) },
  };
  const needs = [
    `role ${role}`,
    ...(login ? ['a login, unless the caller is an operator'] : []),
    `scope admin${method === 'get' ? ' or admin:read' : ''}${scope === undefined ? '' : ` or ${scope}`}`,
  ].join('; ');
  return {
    method,
    path: open,
    tag: open.split('/')[2] ?? 'admin',
    summary,
    needs,
    operation: {
      parameters: [
        ...pathParameters(open, params),
        ...queryParameters(query),
        ...(creates && route.repeatable !== true ? [IDEMPOTENCY] : []),
      ],
      ...(body && { requestBody: { required: true, content: { [JSON_TYPE]: { schema: schemaOf(body, 'input') } } } }),
      responses: { ...again, [status]: { description: 'Done.', ...content }, default: ERROR },
    },
  };
}

const REQUEST_HEADERS: Readonly<Record<string, string>> = {
  'x-otela-trusted-providers': 'Only these providers may receive the request, for example "eth, psi@peer".',
  'x-otela-model': 'Model of the request. The gateway then does not parse the body.',
  'x-otela-stream': '"1": the response to an unparsed body streams.',
  'x-otela-require': 'Only nodes that meet these requirements, for example "gpu=GH200,H100; context>=32768".',
  'x-otela-prefer': 'Nodes to prefer, in the same form. It excludes no node.',
  'x-otela-session':
    'Requests with the same id are sent to the same node if possible. The names that Claude Code, Codex, opencode and Open WebUI send count, too.',
  'x-otela-priority': '"interactive" or "batch": interactive requests get a free node first, and prefer stable nodes.',
  'x-otela-first-token':
    'For streams, for example "500ms": nodes and fallback models with recent streams that began within this time come first.',
  'x-otela-reasoning-budget': 'Maximum reasoning tokens, if the engine supports it.',
  'x-otela-resume': '"1": a broken stream may be continued on another node.',
  'x-otela-wait': 'Seconds to wait for a model that is starting, 0 to 3600.',
  'x-otela-no-track': '"1": store no usage record, only the counters for limits. The key must have the right no_track.',
  'x-otela-no-trace': '"1": leave the request out of the workload trace. Its usage is recorded and counted.',
  'x-otela-seal': 'For an encrypted request: version, nonce and times (docs/design/sealed-wire.md).',
  'x-otela-seal-to': 'For an encrypted request: its key, encrypted for each node that may decrypt it.',
  'x-request-id': 'Returned with the response.',
};

function modelOperations(): Operation[] {
  const parameters = Object.entries(REQUEST_HEADERS).map(([name, description]) => ({
    name,
    in: 'header',
    description,
    schema: { type: 'string' },
  }));
  const asked = ENDPOINTS.map(({ path, body, answer, streams }) => {
    const type = body === 'multipart' ? 'multipart/form-data' : JSON_TYPE;
    const properties = { model: { type: 'string' }, ...(body === 'multipart' && uploadOf(path)) };
    const model = { type: 'object', required: Object.keys(properties), properties };
    const answers = { [answer === 'json' ? JSON_TYPE : 'application/octet-stream']: {} };
    const operation = {
      parameters,
      requestBody: { required: true, content: { [type]: { schema: model, ...exampleOf(path) } } },
      responses: {
        '200': {
          description: 'Response of the engine.',
          content: { ...answers, ...(streams && { 'text/event-stream': {} }) },
        },
        default: ERROR,
      },
    };
    const summary = `Same API as OpenAI, Anthropic or vLLM. The gateway sends the request to a node that serves the model.`;
    return { method: 'post', path, tag: 'models', summary, needs: 'scope inference', operation };
  });
  return [...asked, realtimeOperation(parameters), ...storedResponseOperations(), ...readOperations()];
}

/** OpenAPI cannot describe the messages of a WebSocket. */
function realtimeOperation(headers: readonly object[]): Operation {
  const description = 'The model of the session. No message may name another one.';
  const model = { name: 'model', in: 'query', required: true, description, schema: { type: 'string' } };
  return {
    method: 'get',
    path: REALTIME.path,
    tag: 'models',
    summary: 'Open a WebSocket to an engine with a realtime API. Messages pass in both directions without changes.',
    needs: 'scope inference',
    operation: {
      parameters: [model, ...headers],
      responses: { '101': { description: 'The WebSocket is open.' }, default: ERROR },
    },
  };
}

function storedResponseOperations(): Operation[] {
  const summaries = { GET: 'Retrieve a stored response.', POST: 'Cancel a response.', DELETE: 'Delete a response.' };
  const query = [
    { name: 'stream', in: 'query', description: '"true": as a stream.', schema: { type: 'string' } },
    { name: 'starting_after', in: 'query', description: 'Number of an event.', schema: { type: 'string' } },
  ];
  return STORED_RESPONSE_ENDPOINTS.map(({ method, path, streams }) => ({
    method: method.toLowerCase(),
    path,
    tag: 'models',
    summary: `${summaries[method]} The node that generated it answers; 404 if that node has left.`,
    needs: 'scope inference',
    operation: {
      parameters: [...pathParameters(path), ...(streams ? query : [])],
      responses: {
        '200': {
          description: 'Response of the engine.',
          content: { [JSON_TYPE]: {}, ...(streams && { 'text/event-stream': {} }) },
        },
        default: ERROR,
      },
    },
  }));
}

/** The field that a form must have in addition to the model. */
function uploadOf(path: string): object {
  if (path.startsWith('/v1/videos/')) return { prompt: { type: 'string' } };
  const [name, description] = path.startsWith('/v1/images/') ? ['image', 'Picture.'] : ['file', 'Audio file.'];
  return { [name]: { type: 'string', format: 'binary', description } };
}

function exampleOf(path: string): object {
  const example = REQUEST_EXAMPLES[path];
  return example === undefined ? {} : { example };
}

const METRICS: Operation = {
  method: 'get',
  path: '/metrics',
  tag: 'observe',
  summary: 'Return counters and gauges for Prometheus.',
  needs: 'the metrics token; or role operator, scope admin or admin:read',
  operation: {
    parameters: [],
    responses: { '200': { description: 'Text format of Prometheus.', content: { 'text/plain': {} } }, default: ERROR },
  },
};

let operations: Operation[] | undefined;

function allOperations(): Operation[] {
  operations ??= [
    ...modelOperations(),
    ...[...FILE_ROUTES, ...BATCH_ROUTES, ...FACTORY_ROUTES].map(describedOperation),
    ...ADMIN_ROUTES.map(adminOperation),
    METRICS,
  ];
  return operations;
}

const errorSchema = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { type: ['string', 'null'] },
        code: { type: 'string', examples: Object.keys(ERROR_KINDS) },
      },
    },
  },
};

/** OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0). */
function openApi(origin: string): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const { method, path, tag, summary, needs, operation } of allOperations()) {
    const operationId = `${method}_${path.replace(/\W+/g, '_').replace(/^_|_$/g, '')}`;
    const described = { operationId, tags: [tag], summary, description: `Needs ${needs}.`, ...operation };
    paths[path] = { ...paths[path], [method]: described };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'OpenTela gateway', version: '1', license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: origin }],
    security: [{ key: [] }, { session: [] }],
    paths,
    components: {
      securitySchemes: {
        key: {
          type: 'http',
          scheme: 'bearer',
          description: 'An API key, or a token of a configured identity provider.',
        },
        session: { type: 'apiKey', in: 'cookie', name: 'otela-session', description: 'Cookie from /login.' },
      },
      responses: { error: { description: 'The request failed.', content: { [JSON_TYPE]: { schema: errorSchema } } } },
    },
  };
}

export const openApiRoutes = new Hono<{ Bindings: Env }>();

openApiRoutes.get('/openapi.json', (c) =>
  c.json(openApi(addressOf(c.req.raw)), 200, { 'cache-control': 'public, max-age=300' }),
);

openApiRoutes.get('/llms.txt', (c) =>
  c.text(llmsText(addressOf(c.req.raw)), 200, { 'cache-control': 'public, max-age=300' }),
);

/** Returns the gateway's address as the client sees it, without a slash at its end. */
function addressOf(request: Request): string {
  return new URL(request.url).origin + basePathOf(request);
}

/** The dashboard's API reference. A gateway without a dashboard shows a plain list instead. */
openApiRoutes.get('/docs', async (c) => {
  try {
    return await dashboardPage(c.env);
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'not_found') throw error;
  }
  return c.html(page(), 200, {
    'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    'cache-control': 'public, max-age=300',
  });
});

const STYLE = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
h2{margin:2rem 0 .5rem}dt{font-family:ui-monospace,monospace;margin-top:.75rem}dt b{display:inline-block;min-width:4.5rem;text-transform:uppercase}
dd{margin:0 0 0 4.5rem}small{opacity:.7}code{font-size:.95em}`;

/** Returns a list of all operations as a page without scripts and external resources. */
function page(): string {
  const tags = new Map<string, Operation[]>();
  for (const one of allOperations()) tags.set(one.tag, [...(tags.get(one.tag) ?? []), one]);
  const sections = [...tags].map(
    ([tag, some]) => `<h2 id="${escaped(tag)}">${escaped(tag)}</h2><dl>${some.map(entry).join('')}</dl>`,
  );
  const links = [...tags.keys()].map((tag) => `<a href="#${escaped(tag)}">${escaped(tag)}</a>`).join(' · ');
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>OpenTela gateway: API</title><style>${STYLE}</style><h1>API of this gateway</h1>
<p>Send <code>Authorization: Bearer sk-otela-…</code>. Errors are OpenAI's envelope. For programs: <a href="openapi.json">openapi.json</a>.</p>
<p>${links}</p>${sections.join('')}</html>`;
}

function entry({ method, path, summary, needs }: Operation): string {
  return `<dt><b>${method}</b> ${escaped(path)}</dt><dd>${escaped(summary)}<br><small>${escaped(needs)}</small></dd>`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
