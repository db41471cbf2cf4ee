/** Reads from a gateway all objects that a configuration file describes. */
import * as z from 'zod';
import { limitsSchema } from '../../settings/limits-schema.ts';
import { type ApiTarget, askGateway, ClientError } from '../api-client.ts';

/** Objects of one kind, more than any gateway has; a longer list means that the gateway repeats its pages. */
const OBJECTS_MAX = 200_000;

const id = z.string();
const row = z.looseObject({ id });
const userRow = z.looseObject({
  id,
  name: z.string(),
  email: z.string().nullable(),
  project_id: z.string().nullable(),
  issuer: z.string().nullable(),
  subject: z.string().nullable(),
  disabled_at: z.string().nullable(),
});
const projectRow = z.looseObject({ id, name: z.string(), disabled_at: z.string().nullable() });
const providerRow = z.looseObject({ id, deleted_at: z.string().nullable() });
const catalogueRow = z.looseObject({ id, owner_id: z.string().nullable(), access: z.array(z.string()).nullable() });
const memberRow = z.object({
  user_id: id,
  lead: z.boolean(),
  claimed: z.boolean(),
  home: z.boolean(),
  limits: limitsSchema.nullable(),
});

export type UserRow = z.infer<typeof userRow>;
export type MemberRow = z.infer<typeof memberRow>;

export interface GatewayState {
  settings: Readonly<Record<string, unknown>>;
  providers: readonly z.infer<typeof providerRow>[];
  projects: readonly z.infer<typeof projectRow>[];
  users: readonly UserRow[];
  /** Users that work in a project, by the project's id. */
  members: ReadonlyMap<string, readonly MemberRow[]>;
  catalogue: readonly z.infer<typeof catalogueRow>[];
  models: readonly z.infer<typeof row>[];
  model_cards: readonly z.infer<typeof row>[];
}

/** @throws ClientError */
export async function readGatewayState(gateway: ApiTarget): Promise<GatewayState> {
  const all = <T extends { id: string }>(path: string, schema: z.ZodType<T>) =>
    readPages({ ...gateway, path }, schema, (last) => last.id);
  const projects = await all('/admin/projects', projectRow);
  const members = new Map<string, MemberRow[]>();
  for (const project of projects) {
    const path = `/admin/projects/${encodeURIComponent(project.id)}/members`;
    members.set(project.id, await readPages({ ...gateway, path }, memberRow, (last) => last.user_id));
  }
  return {
    settings: z.looseObject({}).parse(await askGateway({ ...gateway, path: '/admin/settings' }, 'GET', '')),
    providers: await all('/admin/providers', providerRow),
    projects,
    users: await all('/admin/users', userRow),
    members,
    catalogue: await all('/admin/catalogue', catalogueRow),
    models: await all('/admin/models', row),
    model_cards: await all('/admin/model-cards', row),
  };
}

async function readPages<T>(target: ApiTarget, schema: z.ZodType<T>, cursorOf: (last: T) => string): Promise<T[]> {
  const page = z.object({ data: z.array(schema), has_more: z.boolean() });
  const all: T[] = [];
  for (let after = ''; ; ) {
    const { data, has_more } = page.parse(await askGateway(target, 'GET', after));
    all.push(...data);
    const last = data.at(-1);
    if (!has_more || last === undefined) return all;
    if (all.length > OBJECTS_MAX) throw new ClientError(`${target.path} has more than ${OBJECTS_MAX} objects`);
    after = `?after=${encodeURIComponent(cursorOf(last))}`;
  }
}
