/** An agent's reply to an order, or to the question about what it runs and which orders it accepts. */
import * as z from 'zod';
import { modelSchema } from '../lattice/node-record.ts';
import { REFUSALS } from './deployment-error.ts';
import { deploymentIdSchema } from './deployment-order.ts';
import { parameterSpecsSchema, parametersSchema, templateNameSchema } from './template-parameters.ts';

/** A template that an agent would start. The command is omitted, because only the agent's operator may see it. */
export const offerSchema = z.object({ template: templateNameSchema, parameters: parameterSpecsSchema });
export type TemplateOffer = z.infer<typeof offerSchema>;

const DEPLOYMENT_STATES = ['starting', 'running', 'stopping', 'failed'] as const;

export const deploymentStateSchema = z.object({
  id: deploymentIdSchema,
  template: templateNameSchema,
  parameters: parametersSchema,
  /** `failed`: the deployment has ended, and `reason` says why. */
  state: z.enum(DEPLOYMENT_STATES),
  /** When the deployment entered this state, by the node's clock, as RFC 3339. */
  since: z.iso.datetime(),
  reason: z.string().max(512).optional(),
});
export type DeploymentState = z.infer<typeof deploymentStateSchema>;

/** Maximum number of templates of one agent. */
export const OFFERS_MAX = 64;

const describedSchema = z.object({
  kind: z.literal('described'),
  /** Templates that the agent would start. Empty while it runs a deployment. */
  offers: z.array(offerSchema).max(OFFERS_MAX),
  deployment: deploymentStateSchema.optional(),
});
export type TemplateDescription = z.infer<typeof describedSchema>;

/**
 * Maximum bytes of the engine's output in one reply. JSON may double their number, which DEPLOYMENT_ANSWER_MAX_BYTES
 * allows.
 */
export const INSPECTED_LOG_MAX_BYTES = 32 * 1024;
/** Maximum bytes of the agent's own log in one reply. */
export const AGENT_LOG_MAX_BYTES = 16 * 1024;
/** Maximum number of GPUs of one node. */
const GPUS_MAX = 64;

const gpuUseSchema = z.object({
  /**
   * Share of the last second in which the GPU ran a kernel, from 0 to 1. Null if the driver does not report it, as for
   * MIG slices.
   */
  use: z.number().min(0).max(1).nullable(),
  memory_used_mib: z.number().min(0).nullable(),
  memory_total_mib: z.number().min(0).nullable(),
  /** Power in watts. Absent if the tool does not report it. */
  power_w: z.number().min(0).max(100_000).nullable().optional(),
  /** Temperature in °C; the hottest sensor if there are several. Absent if the tool does not report it. */
  temperature_c: z.number().min(0).max(1_000).nullable().optional(),
});
export type GpuUse = z.infer<typeof gpuUseSchema>;

export const inspectedSchema = z.object({
  kind: z.literal('inspected'),
  /** The engine's last output lines, without control characters. */
  log: z.string().max(INSPECTED_LOG_MAX_BYTES),
  /** Null if the node has no tool that reports its GPUs. */
  gpus: z.array(gpuUseSchema).max(GPUS_MAX).nullable(),
  /** The end of the agent's own log. Absent from older agents. */
  agent_log: z.string().max(AGENT_LOG_MAX_BYTES).optional(),
  /** Why there is no log: the provider forbids it, or the node has opened sealed requests. */
  withheld: z.enum(['forbidden', 'sealed']).optional(),
});
export type Inspection = z.infer<typeof inspectedSchema>;

export const deploymentAnswerSchema = z.discriminatedUnion('kind', [
  describedSchema,
  z.object({ kind: z.literal('accepted'), deployment: deploymentStateSchema }),
  /** Reply to an order to load or unload a model. `state`: the state that it has now, or will have if nothing fails. */
  z.object({ kind: z.literal('model'), model: modelSchema.shape.id, state: modelSchema.shape.state }),
  /** Reply to an order to drain. The agent waits for `running` requests. */
  z.object({ kind: z.literal('draining'), running: z.number().int().min(0) }),
  /** Reply to an order to restart. `from`: the version that runs until the restart. */
  z.object({ kind: z.literal('restarting'), running: z.number().int().min(0), from: z.string().max(64) }),
  inspectedSchema,
  z.object({ kind: z.literal('refused'), code: z.enum(REFUSALS), message: z.string().max(4096) }),
]);
export type DeploymentAnswer = z.infer<typeof deploymentAnswerSchema>;

/** Maximum size of the encoded reply. */
export const DEPLOYMENT_ANSWER_MAX_BYTES = 128 * 1024;
