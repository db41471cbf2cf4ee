import * as z from 'zod';
import { ACCOUNT_SCOPES, type apiKeys, ROLES } from '../../accounts/account-tables.ts';
import { isoTime, restrictionsView, restrictionView } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';

export type KeyRow = typeof apiKeys.$inferSelect;

export const keySchema = restrictionsView.extend({
  object: z.literal('key'),
  id: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  provider: z.string().nullable(),
  user_id: z.string().nullable(),
  project_id: z.string().nullable(),
  prefix: z.string(),
  scopes: z.array(z.enum(ACCOUNT_SCOPES)).nullable(),
  rotated_from: z.string().nullable(),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime().nullable(),
  last_used_at: z.iso.datetime().nullable(),
  revoked_at: z.iso.datetime().nullable(),
});

/** Returns the members of a key that may be shown, which never include its hash. */
export function keyView(row: KeyRow): z.infer<typeof keySchema> {
  return {
    object: 'key',
    id: row.id,
    name: row.name,
    role: row.role,
    provider: row.provider,
    user_id: row.userId,
    project_id: row.projectId,
    prefix: row.prefix,
    scopes: row.scopes,
    ...restrictionView(row),
    rotated_from: row.rotatedFrom,
    created_at: rfc3339(row.createdAt),
    expires_at: isoTime(row.expiresAt),
    last_used_at: isoTime(row.lastUsedAt),
    revoked_at: isoTime(row.revokedAt),
  } as z.infer<typeof keySchema>;
}
