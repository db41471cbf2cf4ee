/** Joins and losses of nodes, as the registry object recorded them. */
import * as z from 'zod';
import { DEPARTURE_CAUSES, departureCause } from '../../../shared/lattice/departure-cause.ts';
import { NODE_EVENTS } from '../../registry/views/node-event-log.ts';
import { type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { listPage, rfc3339 } from '../pagination.ts';
import { askRegistry } from '../session-param.ts';

const querySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
  /** Id of the last entry of the previous page. */
  after: z.coerce.number().int().positive().optional(),
  session: z.string().max(64).optional(),
  event: z.enum(NODE_EVENTS).optional(),
});

const eventSchema = z.object({
  object: z.literal('node_event'),
  id: z.number(),
  at: z.iso.datetime(),
  session: z.string(),
  node: z.string().nullable(),
  provider: z.string(),
  cluster: z.string(),
  event: z.enum(NODE_EVENTS),
  reason: z.string().nullable(),
  /** For a `left` event: the category of its reason. */
  cause: z.enum(DEPARTURE_CAUSES).nullable(),
});

/** Must be registered before `/nodes/:session`, which also matches this path. */
export const nodeHistoryRoutes: readonly AdminRoute[] = [
  route({
    role: 'provider',
    method: 'get',
    path: '/nodes/history',
    summary:
      'List joins and losses of nodes, newest first: at most 20,000, of the last 30 days. Operators see all nodes, providers only their own.',
    query: querySchema,
    answer: listSchema(eventSchema),
    run: async ({ env, query, account }) => {
      const provider = account.role === 'operator' ? undefined : (account.provider ?? '');
      const found = await askRegistry(env, (registry) => registry.history({ ...query, provider }));
      const events = found.map(({ at, ...event }) => {
        const cause = event.event === 'left' ? departureCause(event.reason) : null;
        return { object: 'node_event', ...event, at: rfc3339(at), cause };
      });
      return listPage(events, query);
    },
  }),
];
