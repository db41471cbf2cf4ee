/** The app: routes mounted, Durable Objects exported, nothing else. */
import { Hono } from 'hono';
import { ApiError } from '../shared/openai/errors.ts';
import { quoted } from '../shared/openai/quoted.ts';
import { loginRoutes } from './accounts/login-routes.ts';
import { openApiRoutes } from './admin/openapi.ts';
import { adminRoutes } from './admin/routes.ts';
import { dashboardRoutes } from './dashboard.ts';
import type { Env } from './env.ts';
import { errorResponse } from './error-response.ts';
import { healthRoutes } from './health.ts';
import { responseOf } from './http.ts';
import { connectInlet } from './inlet/connect.ts';
import { INLET_PATH } from './inlet/frames.ts';
import { metricsRoutes } from './observe/routes.ts';
import { handleOpenAI } from './openai/handle.ts';
import { readRoutes } from './openai/read-routes.ts';
import { admitRoutes } from './registry/admit.ts';
import { agentLogRoutes } from './registry/agent-logs.ts';
import { connectGossip } from './registry/door.ts';
import { requestIdOf } from './request-id.ts';
import { connectAgent } from './tunnel/connect.ts';

const app = new Hono<{ Bindings: Env }>();

app.route('/', healthRoutes);
app.route('/', metricsRoutes);
app.route('/', dashboardRoutes);
app.route('/admin', adminRoutes);
app.route('/', loginRoutes);
app.route('/', openApiRoutes);
app.get('/agent/connect', (c) => connectAgent(c.req.raw, c.env, c.executionCtx));
app.get('/agent/gossip', (c) => connectGossip(c.req.raw, c.env, c.executionCtx));
app.route('/agent', admitRoutes);
app.route('/agent', agentLogRoutes);
app.route('/v1', readRoutes);
app.all('/v1/*', async (c) => responseOf(await handleOpenAI(c.req.raw, c.req.path, c.env, c.executionCtx)));
app.get(INLET_PATH, (c) => connectInlet(c.req.raw, c.env, c.executionCtx) ?? c.notFound());
app.notFound((c) => {
  const error = new ApiError('not_found', `There is no ${quoted(c.req.path)} here.`);
  return errorResponse(error, requestIdOf(c.req.raw));
});
app.onError((error, c) => errorResponse(error, requestIdOf(c.req.raw)));

/** Without what a URL object costs. */
function pathOf(url: string): string {
  const from = url.indexOf('/', url.indexOf('://') + 3);
  const query = url.indexOf('?', from);
  return query === -1 ? url.slice(from) : url.slice(from, query);
}

/** Requests to models are most of the traffic and need nothing of the router: they go past it. */
export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    if (request.method !== 'POST') return app.fetch(request, env, ctx);
    const pathname = pathOf(request.url);
    if (!pathname.startsWith('/v1/')) return app.fetch(request, env, ctx);
    return responseOf(await handleOpenAI(request, pathname, env, ctx));
  },
};
export { LimitsObject } from './accounts/limits-object.ts';
export { ObserveObject } from './observe/object.ts';
export { QueueObject } from './queue/object.ts';
export { RegistryObject } from './registry/object.ts';
export { RegistryRelay } from './registry/relay.ts';
export { TunnelObject } from './tunnel/object.ts';
export { UsageObject } from './usage/object.ts';
