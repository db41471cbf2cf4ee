/** The admin API, which the app mounts at `/admin`. Errors are thrown; the app turns them into responses. */
import { Hono } from 'hono';
import { ApiError, methodNotAllowed } from '../../shared/openai/api-errors.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import type { Env } from '../env.ts';
import { adminCaller } from './admin-caller.ts';
import type { AdminRoute } from './admin-route.ts';
import { auditRoutes } from './audit-log.ts';
import { factoryAdminRoutes } from './factories.ts';
import { factoryTokenRoutes } from './factory-tokens.ts';
import { timelineRoutes } from './forecast-timelines.ts';
import { catalogueRoutes } from './models/catalogue.ts';
import { modelCardRoutes } from './models/model-cards.ts';
import { modelRoutes } from './models/model-settings.ts';
import { routingRoutes } from './models/routing-weights.ts';
import { nodeLoadRoutes } from './node-loads.ts';
import { deploymentRoutes } from './nodes/deployments.ts';
import { drainRoutes } from './nodes/drain-node.ts';
import { functionContextRoutes } from './nodes/function-contexts.ts';
import { nodeHistoryRoutes } from './nodes/node-history.ts';
import { nodeRoutes } from './nodes/nodes.ts';
import { replicaRoutes } from './nodes/replicas.ts';
import { restartRoutes } from './nodes/restart-engine.ts';
import { telemetryRoutes } from './nodes/telemetry.ts';
import { peerRoutes } from './peer-institutions.ts';
import { accessRequestRoutes } from './people/access-requests.ts';
import { meRoutes } from './people/current-user.ts';
import { deviceLoginRoutes } from './people/device-logins.ts';
import { joinTokenRoutes } from './people/join-tokens.ts';
import { keyRoutes } from './people/keys.ts';
import { memberRoutes } from './people/members.ts';
import { ownUsageRoutes } from './people/own-usage.ts';
import { projectRoutes } from './people/projects.ts';
import { providerRightRoutes } from './people/provider-rights.ts';
import { userRoutes } from './people/users.ts';
import { providerRoutes } from './providers.ts';
import { regionPriceRoutes } from './regions/electricity-prices.ts';
import { regionPlanRoutes } from './regions/region-plan.ts';
import { regionRoutes } from './regions/regions.ts';
import { settingsRoutes } from './settings-routes.ts';
import { batchUsageRoutes } from './usage/batch-usage.ts';
import { peerStatementRoutes } from './usage/peer-statements.ts';
import { requestRoutes } from './usage/request-timelines.ts';
import { statementRoutes } from './usage/statements.ts';
import { usageRoutes } from './usage/usage-routes.ts';
import { workloadRoutes } from './usage/workload-statistics.ts';

/**
 * All routes with their permissions. The router, the 405 responses, the tests of roles and /openapi.json are generated
 * from this list.
 */
export const ADMIN_ROUTES: readonly AdminRoute[] = [
  ...meRoutes,
  ...ownUsageRoutes,
  ...keyRoutes,
  ...deviceLoginRoutes,
  ...userRoutes,
  ...projectRoutes,
  ...memberRoutes,
  ...accessRequestRoutes,
  ...providerRightRoutes,
  ...providerRoutes,
  ...joinTokenRoutes,
  ...factoryTokenRoutes,
  ...factoryAdminRoutes,
  ...modelRoutes,
  ...modelCardRoutes,
  ...catalogueRoutes,
  ...nodeHistoryRoutes,
  ...nodeRoutes,
  ...nodeLoadRoutes,
  ...routingRoutes,
  ...regionRoutes,
  ...regionPlanRoutes,
  ...regionPriceRoutes,
  ...deploymentRoutes,
  ...functionContextRoutes,
  ...replicaRoutes,
  ...drainRoutes,
  ...restartRoutes,
  ...telemetryRoutes,
  ...peerRoutes,
  ...peerStatementRoutes,
  ...settingsRoutes,
  ...auditRoutes,
  ...usageRoutes,
  ...statementRoutes,
  ...workloadRoutes,
  ...timelineRoutes,
  ...batchUsageRoutes,
  ...requestRoutes,
];

export const adminRoutes = new Hono<{ Bindings: Env }>();

/** Other methods on these paths get 405 with the allowed methods, but only after authentication. */
for (const [path, routes] of Map.groupBy(ADMIN_ROUTES, (one) => one.path)) {
  for (const { method, run } of routes) adminRoutes.on(method.toUpperCase(), path, (c) => run(c));
  const allowed = routes.map(({ method }) => method.toUpperCase());
  adminRoutes.all(path, async (c) => {
    await adminCaller(c.env, c.req.raw, Date.now());
    throw methodNotAllowed(c.req.method, c.req.path, allowed);
  });
}

adminRoutes.all('*', async (c) => {
  await adminCaller(c.env, c.req.raw, Date.now());
  throw new ApiError('not_found', `There is nothing at ${quoteForMessage(c.req.path)}.`);
});
