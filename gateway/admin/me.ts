import * as z from 'zod';
import { ROLES } from '../accounts/schema.ts';
import { type AdminRoute, route } from './route.ts';

const meSchema = z.object({
  object: z.literal('me'),
  /** The key, or the user who logged in. */
  id: z.string(),
  role: z.enum(ROLES),
  login: z.boolean(),
  user_id: z.string().nullable(),
  project_id: z.string().nullable(),
  provider: z.string().nullable(),
  scopes: z.array(z.string()).nullable(),
});

export const meRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me',
    summary: 'Who asks.',
    answer: meSchema,
    run: async ({ account, login }) => ({
      object: 'me',
      id: account.keyId,
      role: account.role,
      login,
      user_id: account.userId ?? null,
      project_id: account.projectId ?? null,
      provider: account.provider ?? null,
      scopes: account.scopes ?? null,
    }),
  }),
];
