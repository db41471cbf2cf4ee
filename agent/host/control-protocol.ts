/**
 * The protocol of an agent's control socket (0600, this user only): one line of JSON is the request, and lines of JSON
 * are the answer.
 *
 *     {"op":"status"}                → {"ok":true,"status":{…}}
 *     {"op":"drain"}                 → {"ok":true}, then the socket stays open until the agent has ended
 *     {"op":"network"}               → {"ok":true,"network":[…]}: all sessions that this agent knows
 *     {"op":"metrics"}               → {"ok":true,"metrics":"…"}: Prometheus' text format
 *     {"op":"weights"}               → {"ok":true,"weights":{…}}: models here and on the provider's other nodes
 *     {"op":"pull","source":"…"}     → {"ok":true,"pull":{…}} every second until it is done or has failed
 *     {"op":"collect"}               → {"ok":true,"freed":0}: bytes of the model of `source`, or of blobs without a model
 *     {"op":"logs","follow":true}    → {"ok":true}, then {"data":"<base64>"} for each chunk of output
 *     any other line                 → {"ok":false,"error":"…"}
 */
import { z } from 'zod';
import { nodePayloadSchema } from '../../shared/lattice/node-payload.ts';
import { modelSchema, SESSION_STATES } from '../../shared/lattice/node-record.ts';

export const controlRequestSchema = z.discriminatedUnion('op', [
  z.object({ op: z.literal('status') }),
  z.object({ op: z.literal('network') }),
  z.object({ op: z.literal('metrics') }),
  z.object({ op: z.literal('weights') }),
  z.object({ op: z.literal('pull'), source: z.string().max(1024) }),
  z.object({ op: z.literal('collect'), source: z.string().max(1024).optional() }),
  z.object({ op: z.literal('drain') }),
  z.object({ op: z.literal('logs'), follow: z.boolean().optional() }),
]);

export type ControlRequest = z.infer<typeof controlRequestSchema>;

/** Maximum length of a request, which is one short line. */
export const REQUEST_MAX_BYTES = 4096;

const pullSchema = z.object({
  source: z.string(),
  bytes: z.number(),
  total: z.number(),
  /** Bytes of this pull that came from the source. */
  from_source: z.number(),
  from_peers: z.number(),
  state: z.enum(['listing', 'pulling', 'unpacking', 'done', 'failed']),
  trouble: z.string().optional(),
  /** Path of the model's snapshot directory. */
  path: z.string().optional(),
  started_at: z.string(),
});
export type PullStatus = z.infer<typeof pullSchema>;

/** A model that a node stores or pulls. */
export const modelHoldingSchema = z.object({
  source: z.string().max(1024),
  revision: z.string().max(128),
  bytes: z.number(),
  /** Bytes of the model that are on the node's disk. */
  here: z.number(),
  /** RFC 3339 UTC. */
  used_at: z.string(),
  /** True if nodes of other providers may pull the model. */
  public: z.boolean(),
  /** True if the model is in use on that node, and is therefore not evicted. */
  pinned: z.boolean(),
});
export type ModelHolding = z.infer<typeof modelHoldingSchema>;

const weightsReportSchema = z.object({
  directory: z.string(),
  used: z.number(),
  limit: z.number(),
  held: z.array(modelHoldingSchema),
  /** The provider's other nodes in the cluster. Without `held` the node did not answer. */
  elsewhere: z.array(z.object({ session: z.string(), held: z.array(modelHoldingSchema).optional() })),
});
export type WeightsReport = z.infer<typeof weightsReportSchema>;

export const statusSchema = z.object({
  /** The session. An agent without one has the random name of its state directory, which has the same form. */
  session: z.string(),
  admitted: z.boolean(),
  /** Provider and cluster from the ticket. */
  provider: z.string().optional(),
  cluster: z.string().optional(),
  pid: z.number(),
  agent_version: z.string(),
  started_at: z.string(),
  state: z.enum(SESSION_STATES),
  gateways: z.array(
    z.object({ url: z.string(), connected: z.boolean(), in_flight: z.number(), refused: z.string().optional() }),
  ),
  engine: z
    .object({
      pid: z.number().optional(),
      url: z.string(),
      answering: z.boolean(),
      trouble: z.string().optional(),
      /** Only until the engine's first answer: how long it has been loading, and the last line that it printed. */
      waiting_s: z.number().optional(),
      last_line: z.string().optional(),
    })
    .optional(),
  /** Addresses at which other agents reach this one. Absent if the agent is not in a mesh. */
  mesh: z
    .object({
      addresses: z.array(z.string()),
      channels: z.number(),
      /** Number of channels that run through a circuit relay. */
      relayed: z.number().default(0),
      /** Number of other agents' circuits that run through this agent. */
      relaying: z.number().default(0),
      /** Number of agents that can be reached through this agent. */
      reserved: z.number().default(0),
    })
    .optional(),
  ingress: z
    .object({ url: z.string(), key_file: z.string(), usage_waiting: z.number(), policy_faults: z.number().default(0) })
    .optional(),
  /** Weights that the agent stores. Absent if it stores none. */
  weights: z.object({ directory: z.string(), uploads: z.number(), pulls: z.array(pullSchema) }).optional(),
  models: z.array(modelSchema),
  hardware: nodePayloadSchema.shape.hardware.optional(),
  job: nodePayloadSchema.shape.job,
});

/** One session in the agent's replica. */
export const networkRowSchema = z.object({
  session: z.string(),
  /** The local name of the session's issuer; `local` is the agent's own issuer. */
  issuer: z.string(),
  provider: z.string(),
  cluster: z.string(),
  state: z.enum(SESSION_STATES),
  /** The session's liveness in this agent's view. `unreachable` describes only the path between the two agents. */
  liveness: z.enum(['alive', 'suspected', 'unreachable']),
  own: z.boolean(),
  host: z.string().optional(),
  models: z.array(modelSchema.pick({ id: true, state: true })),
  gpus: z.array(z.object({ class: z.string(), count: z.number() })),
  ends_at: z.string().optional(),
});

export type NetworkRow = z.infer<typeof networkRowSchema>;

export type AgentStatus = z.infer<typeof statusSchema>;

export const controlAnswerSchema = z.union([
  z.object({
    ok: z.literal(true),
    status: statusSchema.optional(),
    network: z.array(networkRowSchema).optional(),
    metrics: z.string().optional(),
    weights: weightsReportSchema.optional(),
    pull: pullSchema.optional(),
    freed: z.number().optional(),
  }),
  z.object({ ok: z.literal(false), error: z.string() }),
  z.object({ data: z.string() }),
]);
