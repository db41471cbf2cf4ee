import { eq } from 'drizzle-orm';
import * as z from 'zod';
import type { Account } from '../../accounts/account.ts';
import { apiKeys, ROLES, users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { conversationsMib } from '../../conversations/conversation-routes.ts';
import type { Env } from '../../env.ts';
import { bannerSchema } from '../../settings/status-settings.ts';
import { readStatusPage } from '../../status/status-object.ts';
import { type AdminRoute, route } from '../admin-route.ts';
import { limitUseSchema, readLimitUse } from './own-usage.ts';

const meSchema = z.object({
  object: z.literal('me'),
  /** Id of the key, or of the logged-in user. */
  id: z.string(),
  /** Name of the user, otherwise of the key. Null for the operator key in the environment. */
  name: z.string().nullable(),
  role: z.enum(ROLES),
  login: z.boolean(),
  user_id: z.string().nullable(),
  project_id: z.string().nullable(),
  provider: z.string().nullable(),
  scopes: z.array(z.string()).nullable(),
  /**
   * Current usage of the limits of the key, of the user in this project, and of the project. Null: the limits object
   * cannot be reached at this moment.
   */
  limits: limitUseSchema.nullable(),
  /** Message of the operator for all users, from the setting `status_page`; null: there is none. */
  banner: bannerSchema.nullable(),
  /** True if the caller may keep conversations here: see `conversations_mib`. */
  keeps_conversations: z.boolean(),
});

export const meRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me',
    summary: 'Return the name, role and rights of the caller.',
    answer: meSchema,
    run: async ({ account, login, env }) => ({
      object: 'me',
      id: account.keyId,
      name: await nameOf(env, account),
      role: account.role,
      login,
      user_id: account.userId ?? null,
      project_id: account.projectId ?? null,
      provider: account.provider ?? null,
      scopes: account.scopes ?? null,
      limits: await readLimitUse(env, account).catch(() => null),
      banner: (await readStatusPage(env))?.banner ?? null,
      keeps_conversations: account.userId !== undefined && (await conversationsMib(env)) > 0,
    }),
  }),
];

async function nameOf(env: Env, { userId, keyId }: Account): Promise<string | null> {
  const table = userId === undefined ? apiKeys : users;
  const query = database(env)
    .select({ name: table.name })
    .from(table)
    .where(eq(table.id, userId ?? keyId));
  const [row] = await queryOrUnavailable(query);
  return row?.name ?? null;
}
