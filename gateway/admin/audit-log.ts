import { and, desc, eq, lt } from 'drizzle-orm';
import * as z from 'zod';
import { auditLog } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { type AdminRoute, route } from './admin-route.ts';
import { listSchema } from './field-schemas.ts';
import { listPage, rfc3339 } from './pagination.ts';

const querySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(100),
  after: z.coerce.number().int().positive().optional(),
  /** Filters. `object`: only changes of this object. `actor`: only changes by this actor. */
  object: z.string().max(256).optional(),
  actor: z.string().max(64).optional(),
});

const auditSchema = z.object({
  object: z.literal('audit'),
  id: z.number(),
  at: z.iso.datetime(),
  actor: z.string(),
  action: z.string(),
  target: z.string(),
  before: z.unknown(),
  after: z.unknown(),
});

export const auditRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/audit',
    summary: 'List the entries of the audit log, newest first.',
    query: querySchema,
    answer: listSchema(auditSchema),
    run: async ({ env, query: { limit, after, object, actor } }) => {
      const where = and(
        after === undefined ? undefined : lt(auditLog.id, after),
        object === undefined ? undefined : eq(auditLog.object, object),
        actor === undefined ? undefined : eq(auditLog.actor, actor),
      );
      const query = database(env)
        .select()
        .from(auditLog)
        .where(where)
        .orderBy(desc(auditLog.id))
        .limit(limit + 1);
      const rows = await queryOrUnavailable(query);
      return listPage(
        rows.map(({ at, object: target, ...row }) => ({ ...row, object: 'audit', at: rfc3339(at), target })),
        { limit },
      );
    },
  }),
];
