/** Routing weights: which share of a model's requests each node gets, by kind of request if the model has kinds. */
import * as z from 'zod';
import { findGpuClass } from '../../../shared/hardware/gpu-classes.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { MODEL_SETTINGS_MAX } from '../../accounts/gateway-settings.ts';
import { modelWeights } from '../../accounts/model-tables.ts';
import { modelParam } from '../../http/route-description.ts';
import { kindSchema, kindsSchema, weightRuleSchema, weightsSchema } from '../../settings/routing-settings.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';
import { modelRowSchema, PerModelTable } from './per-model-table.ts';

const putSchema = z.strictObject({ weights: weightsSchema, kinds: kindsSchema.optional() });
const routingSchema = z.object({
  object: z.literal('routing'),
  model: z.string(),
  weights: z.array(weightRuleSchema),
  kinds: z.array(kindSchema),
  updated_at: z.iso.datetime(),
});
const deletedSchema = z.object({ object: z.literal('routing'), model: z.string(), deleted: z.boolean() });

const rows = new PerModelTable(modelWeights, 'routing', MODEL_SETTINGS_MAX, view);

const OPERATOR = { role: 'operator' } as const;
const ONE = `/routing/${modelParam('model')}`;

export const routingRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'get',
    path: '/routing',
    summary: 'List models with routing weights.',
    answer: listSchema(routingSchema),
    run: (call) => rows.list(call),
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: ONE,
    params: { model: modelRowSchema },
    summary: 'Return the routing weights and request kinds of one model.',
    answer: routingSchema,
    run: async (call) => {
      const model = call.param('model');
      const row = await rows.find(call, model);
      if (row !== undefined) return view(row);
      throw new ApiError('not_found', `The model "${model}" has no weights.`);
    },
  }),
  route({
    ...OPERATOR,
    method: 'put',
    path: ONE,
    params: { model: modelRowSchema },
    summary:
      'Set the weight of nodes that match a rule, and the kinds of requests that rules name. The most specific rule counts. Takes effect everywhere within 5 s.',
    body: putSchema,
    answer: routingSchema,
    run: put,
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: ONE,
    params: { model: modelRowSchema },
    summary:
      'Delete the routing weights of one model, and return whether there were any. Its routing policy then applies. Repeating is safe.',
    answer: deletedSchema,
    run: async (call) => {
      const model = call.param('model');
      return { object: 'routing', model, deleted: await rows.delete(call, model) };
    },
  }),
];

async function put(call: AdminCall<z.infer<typeof putSchema>>): Promise<object> {
  const model = call.param('model');
  if (await rows.isFull(call, model))
    throw new ApiError(
      'unprocessable_content',
      `At most ${MODEL_SETTINGS_MAX} models can have weights. Delete some first.`,
    );
  // Converts a GPU's name to the class that nodes publish: `h100` and `NVIDIA H100 80GB HBM3` become H100.
  const weights = call.body.weights.map((rule) =>
    rule.gpu === undefined ? rule : { ...rule, gpu: findGpuClass(rule.gpu)?.name ?? rule.gpu.toUpperCase() },
  );
  const kinds = call.body.kinds ?? [];
  const twice = kinds.find(({ name }, at) => kinds.findIndex((one) => one.name === name) !== at);
  if (twice !== undefined)
    throw new ApiError('unprocessable_content', `kinds: "${twice.name}" is listed twice.`, { param: 'kinds' });
  const unknown = weights.find(({ kind }) => kind !== undefined && !kinds.some(({ name }) => name === kind));
  if (unknown !== undefined)
    throw new ApiError('unprocessable_content', `weights: "${unknown.kind}" is not one of \`kinds\`.`, {
      param: 'weights',
    });
  const before = await rows.find(call, model);
  const set = { weights, kinds: kinds.length === 0 ? null : kinds, updatedAt: call.now };
  return rows.write(call, model, { row: { model, ...set }, set, before });
}

function view(row: typeof modelWeights.$inferSelect) {
  const { model, weights, kinds } = row;
  return { object: 'routing' as const, model, weights, kinds: kinds ?? [], updated_at: rfc3339(row.updatedAt) };
}
