/** Model cards: descriptions of models that operators write and the catalog shows. Routing does not use them. */
import * as z from 'zod';
import { MODALITIES } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { readGatewaySettings } from '../../accounts/gateway-settings.ts';
import { hasAccess } from '../../accounts/model-access.ts';
import { modelCards } from '../../accounts/model-tables.ts';
import { CONTROL_FREE } from '../../http/common-schemas.ts';
import { modelParam } from '../../http/route-description.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';
import { modelRowSchema, PerModelTable } from './per-model-table.ts';

/** Maximum number of cards, because the catalog reads all of them in one query. */
const CARDS_MAX = 500;
const DESCRIPTION_MAX_CHARS = 4_000;

const line = z.string().trim().max(120).regex(CONTROL_FREE, 'must not contain control characters');

/** A PUT replaces the whole card: an absent field becomes empty. */
const putSchema = z.strictObject({
  /** Description in Markdown. */
  description: z.string().max(DESCRIPTION_MAX_CHARS).default(''),
  /** Name of the license, for example "Apache-2.0". */
  license: line.default(''),
  /** Number of parameters, for example "8B" or "235B, 22B active". */
  size: line.default(''),
  context_length: z.number().int().min(1).max(1_000_000_000).nullable().default(null),
  /** Modalities that the model reads. */
  input: z.array(z.enum(MODALITIES)).max(MODALITIES.length).default([]),
  /** Modalities that the model writes. */
  output: z.array(z.enum(MODALITIES)).max(MODALITIES.length).default([]),
  /** True if the model can call tools. */
  tools: z.boolean().nullable().default(null),
  /** True if the model reasons before it answers. */
  reasoning: z.boolean().nullable().default(null),
  /** Link to more information. */
  url: z
    .url({ protocol: /^https$/ })
    .max(500)
    .nullable()
    .default(null),
});

const cardSchema = putSchema.extend({ object: z.literal('model_card'), id: z.string(), updated_at: z.iso.datetime() });

const rows = new PerModelTable(modelCards, 'model_card', CARDS_MAX, view);

const ONE = `/model-cards/${modelParam('id')}`;

export const modelCardRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/model-cards',
    summary: 'List model cards: description, license, size, context length, and input and output types.',
    answer: listSchema(cardSchema),
    run: async (call) => {
      const settings = await readGatewaySettings(call.env);
      return rows.list(call, (model) => hasAccess(settings, call.account, model));
    },
  }),
  route({
    role: 'operator',
    method: 'put',
    path: ONE,
    params: { id: modelRowSchema },
    summary: 'Replace the card of one model. Absent members are removed.',
    body: putSchema,
    answer: cardSchema,
    run: putCard,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: ONE,
    params: { id: modelRowSchema },
    summary: 'Delete the card of a model, and return whether there was one.',
    answer: z.object({ object: z.literal('model_card'), id: z.string(), deleted: z.boolean() }),
    run: async (call) => {
      const id = call.param('id');
      return { object: 'model_card', id, deleted: await rows.delete(call, id) };
    },
  }),
];

async function putCard(call: AdminCall<z.infer<typeof putSchema>>): Promise<object> {
  const model = call.param('id');
  if (await rows.isFull(call, model))
    throw new ApiError('invalid_request', `At most ${CARDS_MAX} models can be described. Delete some first.`);
  const before = await rows.find(call, model);
  const { context_length: contextLength, ...rest } = call.body;
  const set = { ...rest, contextLength, updatedAt: call.now };
  return rows.write(call, model, { row: { model, ...set }, set, before });
}

function view({
  model,
  contextLength,
  updatedAt,
  ...rest
}: typeof modelCards.$inferSelect): z.infer<typeof cardSchema> {
  return { object: 'model_card', id: model, ...rest, context_length: contextLength, updated_at: rfc3339(updatedAt) };
}
