import { eq } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { projects } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { newId } from '../../accounts/secrets.ts';
import { displayNameSchema } from '../../http/common-schemas.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, createOnce } from '../apply-change.ts';
import {
  grantsSchema,
  isoTime,
  listSchema,
  NO_RESTRICTIONS,
  readPage,
  restrictionColumns,
  restrictionsSchema,
  restrictionsView,
  restrictionView,
  servingOptionsSchema,
} from '../field-schemas.ts';
import { pageSchema, rfc3339 } from '../pagination.ts';

type Project = typeof projects.$inferSelect;

const fields = restrictionsSchema
  .extend(grantsSchema.shape)
  .extend(servingOptionsSchema.shape)
  .extend({ name: displayNameSchema, trace: z.boolean(), trace_prefixes: z.boolean() });
const createSchema = fields.partial().extend({ name: displayNameSchema }).strict();
const patchSchema = fields.partial().extend({ disabled: z.boolean().optional() }).strict();

const projectSchema = restrictionsView.extend({
  object: z.literal('project'),
  id: z.string(),
  name: z.string(),
  trace: z.boolean(),
  trace_prefixes: z.boolean(),
  created_at: z.iso.datetime(),
  disabled_at: z.iso.datetime().nullable(),
});

const OPERATOR = { role: 'operator' } as const;

export const projectRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'post',
    path: '/projects',
    summary: 'Create a project. Its lists and limits apply to each of its keys.',
    body: createSchema,
    answer: projectSchema,
    run: createProject,
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/projects',
    summary: 'List projects, newest first.',
    query: pageSchema,
    answer: listSchema(projectSchema),
    run: (call) => readPage(call.env, projects, call.query, undefined, view),
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/projects/:id',
    summary: 'Return one project.',
    answer: projectSchema,
    run: async (call) => view(await found(call)),
  }),
  route({
    ...OPERATOR,
    method: 'patch',
    path: '/projects/:id',
    summary: 'Change or disable a project. Takes effect for its keys within 5 s.',
    body: patchSchema,
    answer: projectSchema,
    run: patchProject,
  }),
];

async function createProject(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { name, trace = false, trace_prefixes: tracePrefixes = false, ...narrowed } = call.body;
  const columns = { ...NO_RESTRICTIONS, ...restrictionColumns(narrowed) };
  const row: Project = {
    ...columns,
    id: newId('proj'),
    name,
    trace,
    tracePrefixes,
    createdAt: call.now,
    disabledAt: null,
  };
  return createOnce(call, {
    action: 'project.create',
    object: row.id,
    after: view(row),
    statements: [database(call.env).insert(projects).values(row)],
    shown: view(row),
    find: async (id) => {
      const [known] = await queryOrUnavailable(database(call.env).select().from(projects).where(eq(projects.id, id)));
      return known && view(known);
    },
  });
}

async function patchProject(call: AdminCall<z.infer<typeof patchSchema>>): Promise<object> {
  const row = await found(call);
  const { name, trace, trace_prefixes: tracePrefixes, disabled, ...narrowed } = call.body;
  // Only given fields are written, because another request may be changing other fields.
  const set = {
    ...restrictionColumns(narrowed),
    ...(name !== undefined && { name }),
    ...(trace !== undefined && { trace }),
    ...(tracePrefixes !== undefined && { tracePrefixes }),
    ...(disabled !== undefined && { disabledAt: disabled ? (row.disabledAt ?? call.now) : null }),
  };
  if (Object.keys(set).length === 0) return view(row);
  const after = view({ ...row, ...set });
  const update = database(call.env).update(projects).set(set).where(eq(projects.id, row.id));
  await applyChange(call, [update], { action: 'project.update', object: row.id, before: view(row), after });
  return after;
}

async function found(call: AdminCall<unknown, unknown>): Promise<Project> {
  const id = call.param('id');
  const [row] = await queryOrUnavailable(database(call.env).select().from(projects).where(eq(projects.id, id)));
  if (row !== undefined) return row;
  throw new ApiError('not_found', `There is no project with id "${id.slice(0, 64)}".`);
}

function view(row: Project): z.infer<typeof projectSchema> {
  return {
    object: 'project',
    id: row.id,
    name: row.name,
    ...restrictionView(row),
    trace: row.trace,
    trace_prefixes: row.tracePrefixes,
    created_at: rfc3339(row.createdAt),
    disabled_at: isoTime(row.disabledAt),
  } as z.infer<typeof projectSchema>;
}
