/** Checks that referenced users, projects and providers exist and are active. @throws ApiError 422 */
import { eq } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { projects, providers, users } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';

type Store = Pick<Env, 'DB'>;

export async function requireUser(env: Store, id: string): Promise<typeof users.$inferSelect> {
  const [row] = await queryOrUnavailable(database(env).select().from(users).where(eq(users.id, id)));
  if (row !== undefined && row.disabledAt === null) return row;
  throw missing('user_id', `There is no enabled user "${id.slice(0, 64)}".`);
}

export async function requireProject(env: Store, id: string): Promise<typeof projects.$inferSelect> {
  const [row] = await queryOrUnavailable(database(env).select().from(projects).where(eq(projects.id, id)));
  if (row !== undefined && row.disabledAt === null) return row;
  throw missing('project_id', `There is no enabled project "${id.slice(0, 64)}".`);
}

export async function requireProvider(env: Store, id: string | null): Promise<typeof providers.$inferSelect> {
  if (id === null) throw missing('provider', 'The role provider requires a provider.');
  const [row] = await queryOrUnavailable(database(env).select().from(providers).where(eq(providers.id, id)));
  if (row !== undefined && row.deletedAt === null) return row;
  throw missing('provider', `There is no provider "${id.slice(0, 130)}".`);
}

function missing(param: string, message: string): ApiError {
  return new ApiError('unprocessable_content', `${param}: ${message}`, { param });
}
