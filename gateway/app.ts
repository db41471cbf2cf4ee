/** The app, which only mounts routes. The additions of each host are in `hosts/`. */
import { Hono } from 'hono';
import { ApiError, methodNotAllowed } from '../shared/openai/api-errors.ts';
import { pathNotFound } from '../shared/openai/endpoints.ts';
import { errorResponse } from '../shared/proxy/error-response.ts';
import { deviceRoutes } from './accounts/login/device-routes.ts';
import { loginRoutes } from './accounts/login/login-routes.ts';
import { adminRoutes } from './admin/admin-routes.ts';
import { openApiRoutes } from './admin/openapi/document.ts';
import { scimRoutes } from './admin/scim/scim-routes.ts';
import { batchRoutes } from './batch/batch-routes.ts';
import { batchAgentRoutes } from './batch/leases/agent-routes.ts';
import { secretRoutes } from './batch/secret-routes.ts';
import { connectCircuit } from './circuit/connect-circuit.ts';
import { conversationRoutes } from './conversations/conversation-routes.ts';
import type { Env } from './env.ts';
import { factoryRoutes } from './factory/exchange-route.ts';
import { fileRoutes } from './files/file-routes.ts';
import { uploadRoutes } from './files/upload-routes.ts';
import { crossOriginHeaders, preflightResponse } from './http/cross-origin.ts';
import { dashboardRoutes } from './http/dashboard-routes.ts';
import { responseOf } from './http/http-request.ts';
import { requestIdOf } from './http/request-id.ts';
import { installRoutes } from './install/install-routes.ts';
import { siteRoutes } from './install/site-route.ts';
import { healthRoutes } from './observe/health-routes.ts';
import { metricsRoutes } from './observe/metrics-routes.ts';
import { discardRequest, handleOpenAI } from './openai/handle-openai.ts';
import { readRoutes } from './openai/read-only-routes.ts';
import { connectRealtime } from './openai/realtime/connect-realtime.ts';
import { admitRoutes } from './registry/admit-agent.ts';
import { agentLeftRoutes } from './registry/agent-left.ts';
import { agentGatewayRoutes } from './registry/gateways-for-agents.ts';
import { connectGossip } from './registry/gossip/connect-gossip.ts';
import { agentLogRoutes } from './registry/views/engine-log-upload.ts';
import { statusRoutes } from './status/status-routes.ts';
import { connectAgent } from './tunnel/connect-agent.ts';
import { MonthlyPeerUsage } from './usage/peer-allowances.ts';

export const app = new Hono<{ Bindings: Env }>();

const peerUsage = new MonthlyPeerUsage();

// Before the middleware of `/v1`, which would replace the response that accepts the WebSocket.
app.get('/v1/realtime', (c) => connectRealtime(c.req.raw, c.env, c.executionCtx));
app.use('/v1/*', async (c, next) => {
  const preflight = preflightResponse(c.env, c.req.raw);
  if (preflight !== undefined) return preflight;
  await next();
  if (c.res.headers.has('access-control-allow-origin')) return; // a response of `handleOpenAI`
  const headers = Object.entries(crossOriginHeaders(c.env, c.req.raw, c.res.status));
  for (const [name, value] of headers) c.header(name, value, { append: true });
});
app.route('/', healthRoutes);
app.route('/', metricsRoutes);
app.route('/', dashboardRoutes);
app.route('/', installRoutes);
app.route('/', statusRoutes);
app.route('/admin', adminRoutes);
app.route('/scim/v2', scimRoutes);
app.route('/scim/:issuer/v2', scimRoutes);
app.route('/', loginRoutes);
app.route('/', deviceRoutes);
app.route('/', openApiRoutes);
app.get('/agent/connect', (c) => connectAgent(c.req.raw, c.env, c.executionCtx));
app.get('/agent/gossip', (c) => connectGossip(c.req.raw, c.env, c.executionCtx));
app.get('/agent/circuit/:to', (c) => connectCircuit(c.req.raw, c.req.param('to'), c.env, c.executionCtx));
app.route('/agent', admitRoutes);
app.route('/agent', agentLogRoutes);
app.route('/agent', agentLeftRoutes);
app.route(
  '/agent',
  agentGatewayRoutes((env, limits, now) => peerUsage.allowances(env, limits, now)),
);
app.route('/agent', siteRoutes);
app.route('/agent/batch', batchAgentRoutes);
app.route('/factory', factoryRoutes);
app.route('/v1/files', fileRoutes);
app.route('/v1/uploads', uploadRoutes);
app.route('/v1/batches', batchRoutes);
app.route('/v1/otela/secrets', secretRoutes);
app.route('/v1/otela/conversations', conversationRoutes);
app.route('/v1', readRoutes);
app.all('/v1/*', async (c) => responseOf(await handleOpenAI(c.req.raw, c.req.path, c.env, c.executionCtx)));
/** Answers 405 to all methods of these paths that no route above handles, such as TRACE. */
for (const path of [
  '/healthz',
  '/readyz',
  '/metrics',
  '/openapi.json',
  '/docs',
  '/llms.txt',
  '/status',
  '/status.json',
])
  app.all(path, (c) => {
    throw methodNotAllowed(c.req.method, path, ['GET', 'HEAD']);
  });
app.notFound((c) => {
  return responseOf(errorResponse(pathNotFound(c.req.path), requestIdOf(c.req.raw)));
});
app.onError(async (error, c) => {
  // Reads and discards the rest of the request body, unless the error is that the body stalled.
  if (!(error instanceof ApiError && error.code === 'request_timeout')) await discardRequest(c.req.raw);
  return responseOf(errorResponse(error, requestIdOf(c.req.raw)));
});
