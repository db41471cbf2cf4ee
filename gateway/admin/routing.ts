/** Which share of a model's requests its nodes get, by kinds of requests where the model has kinds. */
import { asc, count, eq, ne } from 'drizzle-orm';
import * as z from 'zod';
import { findGpuClass } from '../../shared/hardware/classes.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { kindSchema, kindsSchema, weightRuleSchema, weightsSchema } from '../accounts/routing-settings.ts';
import { modelWeights } from '../accounts/schema.ts';
import { MODEL_SETTINGS_MAX } from '../accounts/settings.ts';
import { change, tell } from './change.ts';
import { listOf } from './fields.ts';
import { rfc3339 } from './list.ts';
import { type AdminRoute, type Call, route } from './route.ts';

type Row = typeof modelWeights.$inferSelect;

const putSchema = z.strictObject({ weights: weightsSchema, kinds: kindsSchema.optional() });
const modelSchema = z.string().min(1).max(256);
const routingSchema = z.object({
  object: z.literal('routing'),
  model: z.string(),
  weights: z.array(weightRuleSchema),
  kinds: z.array(kindSchema),
  updated_at: z.iso.datetime(),
});
const deletedSchema = z.object({ object: z.literal('routing'), model: z.string(), deleted: z.boolean() });

const OPERATOR = { role: 'operator' } as const;
const ONE = '/routing/:model{.+}';

export const routingRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'get',
    path: '/routing',
    summary: 'Models with weights.',
    answer: listOf(routingSchema),
    run: async ({ env }) => {
      const rows = await asked(database(env).select().from(modelWeights).orderBy(asc(modelWeights.model)));
      return { object: 'list', data: rows.map(view), has_more: false };
    },
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: ONE,
    params: { model: modelSchema },
    summary: "One model's weights and kinds.",
    answer: routingSchema,
    run: async (call) => {
      const row = await find(call);
      if (row !== undefined) return view(row);
      throw new ApiError('not_found', `Model "${modelOf(call)}" has no weights.`);
    },
  }),
  route({
    ...OPERATOR,
    method: 'put',
    path: ONE,
    params: { model: modelSchema },
    summary:
      'The weight of each node that fits a rule, and the kinds of requests that rules name. The rule that names most counts; acts everywhere within 5 s.',
    body: putSchema,
    answer: routingSchema,
    run: put,
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: ONE,
    params: { model: modelSchema },
    summary: 'Back to the policy that is set. Says whether weights were there; repeating is safe.',
    answer: deletedSchema,
    run: remove,
  }),
];

async function put(call: Call<z.infer<typeof putSchema>>): Promise<object> {
  const model = modelOf(call);
  const db = database(call.env);
  const [others] = await asked(db.select({ n: count() }).from(modelWeights).where(ne(modelWeights.model, model)));
  if ((others?.n ?? 0) >= MODEL_SETTINGS_MAX)
    throw new ApiError(
      'unprocessable_content',
      `At most ${MODEL_SETTINGS_MAX} models can have weights. Delete some first.`,
    );
  // As nodes publish it: `h100` and `NVIDIA H100 80GB HBM3` are H100.
  const weights = call.body.weights.map((rule) =>
    rule.gpu === undefined ? rule : { ...rule, gpu: findGpuClass(rule.gpu)?.name ?? rule.gpu.toUpperCase() },
  );
  const kinds = call.body.kinds ?? [];
  const twice = kinds.find(({ name }, at) => kinds.findIndex((one) => one.name === name) !== at);
  if (twice !== undefined)
    throw new ApiError('unprocessable_content', `kinds: "${twice.name}" stands there twice.`, { param: 'kinds' });
  const unknown = weights.find(({ kind }) => kind !== undefined && !kinds.some(({ name }) => name === kind));
  if (unknown !== undefined)
    throw new ApiError('unprocessable_content', `weights: "${unknown.kind}" is none of \`kinds\`.`, {
      param: 'weights',
    });
  const before = await find(call);
  const set = { weights, kinds: kinds.length === 0 ? null : kinds, updatedAt: call.now };
  const row = { model, ...set };
  const write = db.insert(modelWeights).values(row).onConflictDoUpdate({ target: modelWeights.model, set });
  const what = { action: 'routing.update', object: model, before: before && view(before), after: view(row) };
  await change(call, [write], what);
  return view(row);
}

async function remove(call: Call): Promise<object> {
  const model = modelOf(call);
  const before = await find(call);
  if (before === undefined) await tell(call.env);
  else {
    const write = database(call.env).delete(modelWeights).where(eq(modelWeights.model, model));
    await change(call, [write], { action: 'routing.delete', object: model, before: view(before) });
  }
  return { object: 'routing', model, deleted: before !== undefined };
}

async function find(call: Call<unknown, unknown>): Promise<Row | undefined> {
  const query = database(call.env)
    .select()
    .from(modelWeights)
    .where(eq(modelWeights.model, modelOf(call)));
  const [row] = await asked(query);
  return row;
}

function modelOf(call: Call<unknown, unknown>): string {
  return call.param('model');
}

function view(row: Row) {
  const { model, weights, kinds } = row;
  return { object: 'routing' as const, model, weights, kinds: kinds ?? [], updated_at: rfc3339(row.updatedAt) };
}
