/**
 * What a node publishes in addition to its record. It is JSON, so that newer agents can publish fields that older
 * replicas do not understand.
 */
import * as z from 'zod';
import { LatticeError } from './lattice-error.ts';
import { GPUS_MAX, gpuSchema, nodeRecordSchema } from './node-record.ts';

/** Maximum size of a payload. It limits the memory that one session can use in every replica. */
export const PAYLOAD_MAX_BYTES = 4096;

const text = (max: number) => z.string().max(max);

/** One row for all identical devices of a node. */
const gpuGroupSchema = gpuSchema.extend({ count: z.number().int().positive().max(GPUS_MAX) });

/** See shared/seal/seal-candidates.ts. */
const sealSchema = z.object({
  v: z.literal(1),
  kid: text(16),
  /** Seconds since 1970. */
  until: z.number().int().nonnegative(),
  vouch: text(512).optional(),
  evidence: z.array(text(16)).max(4).optional(),
});

/** Maximum number of models in the list of weights; a node may store weights of more models. */
export const WEIGHTS_SHOWN_MAX = 8;

const keptWeightsSchema = z.object({
  /** The model's name on the hub (`org/name`), or the last part of a path. */
  name: text(96),
  /** Stored share of the weights in percent, from 0 to 100. */
  percent: z.number().int().min(0).max(100),
});

export const nodePayloadSchema = nodeRecordSchema.omit({ state: true, version: true, hardware: true }).extend({
  hardware: z.object({
    gpus: z
      .array(gpuGroupSchema)
      .max(64)
      .refine((groups) => groups.reduce((sum, { count }) => sum + count, 0) <= GPUS_MAX, `at most ${GPUS_MAX} GPUs`),
    cpus: z.number().int().nonnegative(),
    memory_mib: z.number().int().nonnegative(),
  }),
  /** Name of the machine. If possible, the helpers of a probe are chosen from different machines. */
  host: text(255).optional(),
  /** Addresses at which the node's mesh listens, `HOST:PORT`. Empty: the node is not reachable directly. */
  addresses: z.array(text(255)).max(8),
  /** True if the node is a circuit relay for agents that cannot reach each other (`--offer-relay`). Absent: false. */
  relay: z.boolean().optional(),
  /** A raw X25519 key in base64url, to which clients seal requests. */
  encryption_key: text(64).optional(),
  /**
   * The provider's statement about `encryption_key`. If this version cannot decode it, the node is still listed, but
   * gets no sealed requests.
   */
  seal: sealSchema.optional().catch(undefined),
  /**
   * Models with weights on this node, for its neighbors. Absent if it stores none, or if this version cannot
   * decode the value.
   */
  weights: z.array(keptWeightsSchema).max(WEIGHTS_SHOWN_MAX).optional().catch(undefined),
});

export type GpuGroup = z.infer<typeof gpuGroupSchema>;
export type NodePayload = z.infer<typeof nodePayloadSchema>;

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** @throws LatticeError too_large */
export function encodePayload(payload: NodePayload): Uint8Array {
  const bytes = encoder.encode(JSON.stringify(payload));
  if (bytes.length > PAYLOAD_MAX_BYTES) throw new LatticeError('too_large', `payload of ${bytes.length} bytes`);
  return bytes;
}

/**
 * Decodes a payload; undefined if that is not possible. Merging does not check this, because a replica that refused
 * what another replica understands would never agree with it again. So a payload that cannot be decoded is stored and
 * passed on, but its node gets no requests.
 */
export function decodePayload(bytes: Uint8Array): NodePayload | undefined {
  try {
    return nodePayloadSchema.safeParse(JSON.parse(decoder.decode(bytes))).data;
  } catch {
    return undefined;
  }
}
