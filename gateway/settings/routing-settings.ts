/** Schemas of routing settings: of the gateway, of a model, and of a key or project. */
import * as z from 'zod';
import { idSchema, SESSION_PATTERN } from '../../shared/lattice/node-record.ts';
import { START_WAIT_MAX_MS } from '../../shared/proxy/cold-model.ts';
import { FIRST_TOKEN_MAX_MS } from '../../shared/proxy/policy-input.ts';
import { KIND_NAME_MAX_CHARS, KINDS_MAX, type RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import { REQUEST_CLASSES, type WeightRule } from '../../shared/routing/policies/node-weights.ts';
import { boundedRecord } from '../http/common-schemas.ts';
import type { ModelClass } from './timeout-classes.ts';

const modelName = z.string().min(1).max(256);

/** Name of a policy. The policy may have been removed since it was stored, and then the name has no effect. */
const policyName = z.string().max(64);

/** Models that are tried in this order: each one if no node serves the model before it. */
export const fallbacksSchema = z.array(modelName).max(4);
/** Other names of a model. */
export const aliasesSchema = z.array(modelName).max(32);

const few = <T extends z.ZodType>(value: T) => boundedRecord(modelName, value, 32);

/** Routing settings of a key or a project, which take precedence over the gateway's. */
export const ownRoutingSchema = z.strictObject({
  policy: policyName.optional(),
  /** From an alias to the model's name. */
  aliases: few(modelName).optional(),
  /** Fallbacks by model. */
  fallbacks: few(fallbacksSchema).optional(),
});
export type OwnRouting = z.infer<typeof ownRoutingSchema>;

/** Maximum of a timeout in milliseconds: a day, because no prefill is silent for longer. */
export const timeoutSchema = z.int().min(1).max(86_400_000);

export const startWaitSchema = z.int().min(0).max(START_WAIT_MAX_MS);

export const firstTokenSchema = z.int().min(1).max(FIRST_TOKEN_MAX_MS);

const classTimeouts = z.strictObject({ first_byte_ms: timeoutSchema.optional(), stall_ms: timeoutSchema.optional() });

/** Routing settings of the gateway. */
export const routingSchema = z.strictObject({
  policy: policyName.optional(),
  timeouts: z.strictObject({ standard: classTimeouts.optional(), reasoning: classTimeouts.optional() }).optional(),
});
export type RoutingSettings = z.infer<typeof routingSchema>;

/**
 * Default timeouts by class. A reasoning model needs this long if its engine sends the response whole, because the
 * engine then sends nothing until the reasoning is finished. If the engine streams the reasoning, less would be enough.
 */
export const CLASS_TIMEOUTS: Record<ModelClass, { first_byte_ms: number; stall_ms: number }> = {
  standard: { first_byte_ms: 900_000, stall_ms: 120_000 },
  reasoning: { first_byte_ms: 1_800_000, stall_ms: 600_000 },
};

const text = z.string().min(1).max(64);
const kindName = z.string().min(1).max(KIND_NAME_MAX_CHARS);
/** Upper bound of token numbers in rules: no prompt or response is longer. */
const TOKENS_MAX = 100_000_000;
const tokens = z.number().positive().max(TOKENS_MAX);
export const kindSchema = z.strictObject({
  name: kindName,
  input: tokens,
  output: tokens,
  share: z.number().min(0).max(1),
});
/** Kinds of one model's requests; empty: the model has no kinds. */
export const kindsSchema = z.array(kindSchema).max(KINDS_MAX);
export const weightRuleSchema = z.strictObject({
  session: z.string().regex(SESSION_PATTERN).optional(),
  cluster: idSchema.optional(),
  gpu: text.optional(),
  region: text.optional(),
  class: z.enum(REQUEST_CLASSES).optional(),
  kind: kindName.optional(),
  weight: z.number().min(0).max(1_000_000),
});
/** Weight rules of one model. Their number is limited because the snapshot contains the rules of all models. */
export const weightsSchema = z.array(weightRuleSchema).min(1).max(500);

/** An operator's settings for one model, without unset fields. */
export interface ModelSettings {
  first_byte_ms?: number;
  stall_ms?: number;
  class?: ModelClass;
  policy?: string;
  aliases?: string[];
  fallbacks?: string[];
  max_retries?: number;
  start_wait_ms?: number;
  first_token_ms?: number;
  weights?: WeightRule[];
  kinds?: RequestKind[];
}
