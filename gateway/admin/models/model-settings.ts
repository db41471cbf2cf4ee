/** Settings of models: routing, waiting and tracing. */
import { and, isNotNull, ne } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { MODEL_SETTINGS_MAX } from '../../accounts/gateway-settings.ts';
import { modelSettings } from '../../accounts/model-tables.ts';
import { modelParam } from '../../http/route-description.ts';
import { maxRetriesSchema } from '../../settings/retry-settings.ts';
import {
  aliasesSchema,
  fallbacksSchema,
  firstTokenSchema,
  startWaitSchema,
  timeoutSchema,
} from '../../settings/routing-settings.ts';
import { MODEL_CLASSES } from '../../settings/timeout-classes.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema, policySchema } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';
import { modelRowSchema, PerModelTable } from './per-model-table.ts';

/** A PUT replaces all settings: an absent field gets the gateway's default. */
const putSchema = z.strictObject({
  first_byte_ms: timeoutSchema.nullable().default(null),
  stall_ms: timeoutSchema.nullable().default(null),
  /** The class selects the gateway's timeouts if `first_byte_ms` and `stall_ms` are null. */
  class: z.enum(MODEL_CLASSES).default('standard'),
  /** The routing policy; null: the gateway's setting. */
  policy: policySchema.nullable().default(null),
  /** Other names of the model. */
  aliases: aliasesSchema.default([]),
  /** Models that are tried in this order if no node serves it. */
  fallbacks: fallbacksSchema.default([]),
  /** Attempts after the first; null: the gateway's setting. */
  max_retries: maxRetriesSchema.nullable().default(null),
  /**
   * Milliseconds for which requests wait while the model is being started, unless the request or its key sets a time.
   * Null: they do not wait.
   */
  start_wait_ms: startWaitSchema.nullable().default(null),
  /**
   * Milliseconds within which a stream should begin, unless its request names a time. Nodes, then fallbacks, with recent
   * streams that began within this time come first. Null: no such time.
   */
  first_token_ms: firstTokenSchema.nullable().default(null),
  /** True if the model's name is hashed in the trace export. */
  private: z.boolean().default(false),
});

const settingsSchema = putSchema.extend({
  object: z.literal('model_settings'),
  id: z.string(),
  updated_at: z.iso.datetime(),
});
const deletedSchema = z.object({ object: z.literal('model_settings'), id: z.string(), deleted: z.boolean() });

const rows = new PerModelTable(modelSettings, 'model', MODEL_SETTINGS_MAX, view);

const OPERATOR = { role: 'operator' } as const;
const ONE = `/models/${modelParam('id')}`;

export const modelRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'get',
    path: '/models',
    summary: 'List models with their own settings.',
    answer: listSchema(settingsSchema),
    run: (call) => rows.list(call),
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: ONE,
    params: { id: modelRowSchema },
    summary: 'Return the settings of one model.',
    answer: settingsSchema,
    run: async (call) => {
      const model = call.param('id');
      const row = await rows.find(call, model);
      if (row !== undefined) return view(row);
      throw new ApiError('not_found', `The model "${model}" has no settings.`);
    },
  }),
  route({
    ...OPERATOR,
    method: 'put',
    path: ONE,
    params: { id: modelRowSchema },
    summary: 'Set how one model is routed, started and traced. Absent settings return to the default.',
    body: putSchema,
    answer: settingsSchema,
    run: putModel,
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: ONE,
    params: { id: modelRowSchema },
    summary:
      'Delete the settings of one model, and return whether there were any. Repeating it updates the registry again.',
    answer: deletedSchema,
    run: async (call) => {
      const id = call.param('id');
      return { object: 'model_settings', id, deleted: await rows.delete(call, id) };
    },
  }),
];

async function putModel(call: AdminCall<z.infer<typeof putSchema>>): Promise<object> {
  const model = call.param('id');
  if (await rows.isFull(call, model)) {
    const message = `At most ${MODEL_SETTINGS_MAX} models can have settings. Delete some first.`;
    throw new ApiError('unprocessable_content', message);
  }
  const before = await rows.find(call, model);
  await requireFree(call, model);
  const set = columns(call.body, call.now);
  return rows.write(call, model, { row: { model, ...set }, set, before });
}

function columns(body: z.infer<typeof putSchema>, now: number) {
  const { first_byte_ms: firstByteMs, stall_ms: stallMs, max_retries: maxRetries, private: hidden } = body;
  const { start_wait_ms: startWaitMs, first_token_ms: firstTokenMs } = body;
  const { class: kind, policy, aliases, fallbacks } = body;
  const names = {
    aliases: aliases.length === 0 ? null : aliases,
    fallbacks: fallbacks.length === 0 ? null : fallbacks,
  };
  return {
    firstByteMs,
    stallMs,
    class: kind,
    policy,
    ...names,
    maxRetries,
    startWaitMs,
    firstTokenMs,
    private: hidden,
    updatedAt: now,
  };
}

/**
 * @throws ApiError 422 if an alias is given twice, is the model itself, or is already an alias of another model; or if
 * the model is its own fallback
 */
async function requireFree({ env, body }: AdminCall<z.infer<typeof putSchema>>, model: string): Promise<void> {
  const { aliases, fallbacks } = body;
  const twice = aliases.find((name, at) => name === model || aliases.indexOf(name) !== at);
  if (twice !== undefined) throw refused('aliases', `"${twice}" is listed twice, or is the model itself.`);
  if (fallbacks.includes(model)) throw refused('fallbacks', 'a model cannot be its own fallback.');
  if (aliases.length === 0) return;
  const others = await queryOrUnavailable(
    database(env)
      .select({ model: modelSettings.model, aliases: modelSettings.aliases })
      .from(modelSettings)
      .where(and(ne(modelSettings.model, model), isNotNull(modelSettings.aliases))),
  );
  for (const other of others) {
    const taken = other.aliases?.find((name) => aliases.includes(name));
    if (taken !== undefined) throw refused('aliases', `"${taken}" is already an alias of "${other.model}".`);
  }
}

function refused(param: string, why: string): ApiError {
  return new ApiError('unprocessable_content', `${param}: ${why}`, { param });
}

function view(row: typeof modelSettings.$inferSelect) {
  return {
    object: 'model_settings' as const,
    id: row.model,
    first_byte_ms: row.firstByteMs,
    stall_ms: row.stallMs,
    class: row.class,
    policy: row.policy,
    aliases: row.aliases ?? [],
    fallbacks: row.fallbacks ?? [],
    max_retries: row.maxRetries,
    start_wait_ms: row.startWaitMs,
    first_token_ms: row.firstTokenMs,
    private: row.private,
    updated_at: rfc3339(row.updatedAt),
  };
}
