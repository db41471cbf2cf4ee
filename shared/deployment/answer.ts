/** What an agent answers: to an order, or to the question what it has and would take. */
import * as z from 'zod';
import { REFUSALS } from './error.ts';
import { deploymentIdSchema } from './order.ts';
import { parameterSpecsSchema, parametersSchema, templateNameSchema } from './parameters.ts';

/** What an agent would start: never the command itself, which is nobody's business but its operator's. */
export const offerSchema = z.object({ template: templateNameSchema, parameters: parameterSpecsSchema });
export type Offer = z.infer<typeof offerSchema>;

const DEPLOYMENT_STATES = ['starting', 'running', 'stopping', 'failed'] as const;

export const deploymentSchema = z.object({
  id: deploymentIdSchema,
  template: templateNameSchema,
  parameters: parametersSchema,
  /** `failed`: it is over, and the reason is why. */
  state: z.enum(DEPLOYMENT_STATES),
  /** RFC 3339, by the node's clock. */
  since: z.iso.datetime(),
  reason: z.string().max(512).optional(),
});
export type Deployment = z.infer<typeof deploymentSchema>;

/** Templates of one agent. */
export const OFFERS_MAX = 64;

const describedSchema = z.object({
  kind: z.literal('described'),
  /** What it takes while nothing runs there. */
  offers: z.array(offerSchema).max(OFFERS_MAX),
  deployment: deploymentSchema.optional(),
});
export type Described = z.infer<typeof describedSchema>;

export const answerSchema = z.discriminatedUnion('kind', [
  describedSchema,
  z.object({ kind: z.literal('accepted'), deployment: deploymentSchema }),
  /** To an order to drain; `running` requests are waited for. */
  z.object({ kind: z.literal('draining'), running: z.number().int().min(0) }),
  z.object({ kind: z.literal('refused'), code: z.enum(REFUSALS), message: z.string().max(4096) }),
]);
export type DeploymentAnswer = z.infer<typeof answerSchema>;

/** As it travels. */
export const ANSWER_MAX_BYTES = 128 * 1024;
