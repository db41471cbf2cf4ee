/** Reports of autoscalers, and the demand for their models, for the dashboard's page and `otela-gateway factory`. */
import * as z from 'zod';
import {
  clusterReport,
  dayPoint,
  decisionReport,
  jobReport,
  modelDemand,
  modelReport,
} from '../../shared/factory/factory-exchange.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { FactoryView } from '../factory/factory-object.ts';
import { FACTORY_OBJECT_NAME } from '../factory/factory-object-name.ts';
import { type AdminRoute, route } from './admin-route.ts';
import { listSchema } from './field-schemas.ts';
import { rfc3339 } from './pagination.ts';

const factorySchema = z.object({
  object: z.literal('factory'),
  /** The autoscaler's name in its configuration. */
  id: z.string(),
  /** Id of the factory token that the autoscaler used. */
  token_id: z.string(),
  provider: z.string(),
  reported_at: z.iso.datetime(),
  /** True if no report arrived for 90 s. Requests then do not wait for models that only this autoscaler could start. */
  silent: z.boolean(),
  config_revision: z.string(),
  models: z.array(modelReport),
  jobs: z.array(jobReport),
  clusters: z.array(clusterReport),
  /** The latest decisions, newest last. */
  decisions: z.array(decisionReport),
  /** Points of the last day, one per five minutes, oldest first. */
  day: z.array(dayPoint),
  /** Demand at this gateway for each of the autoscaler's models. */
  demand: z.array(modelDemand),
});

export const factoryAdminRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/factory',
    summary:
      'List autoscalers with their models, jobs (with the end of each log), decisions, history of the last day, and demand.',
    answer: listSchema(factorySchema),
    run: async ({ env }) => {
      const factories = await asking(() => env.FACTORY.getByName(FACTORY_OBJECT_NAME).show());
      return { object: 'list', data: factories.map(view), has_more: false };
    },
  }),
];

/** @throws ApiError 503 */
async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The reports of factories cannot be read. Try again shortly.', {
      cause,
    });
  }
}

function view(factory: FactoryView): z.infer<typeof factorySchema> {
  const { tokenId, provider, at, silent, configRevision, models, jobs, clusters, decisions, day, demand } = factory;
  return {
    object: 'factory',
    id: factory.factory,
    token_id: tokenId,
    provider,
    reported_at: rfc3339(at),
    silent,
    config_revision: configRevision,
    models,
    jobs,
    clusters,
    decisions,
    day: [...day],
    demand,
  };
}
