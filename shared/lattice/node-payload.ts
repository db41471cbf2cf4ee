/**
 * What a node publishes besides its state. JSON, so that newer agents can publish more than older replicas understand.
 */
import * as z from 'zod';
import { LatticeError } from './lattice-error.ts';
import { GPUS_MAX, gpuSchema, nodeRecordSchema } from './node-record.ts';

/** Bounds what one session can make every replica hold. */
export const PAYLOAD_MAX_BYTES = 4096;

const text = (max: number) => z.string().max(max);

/** Identical devices share one row. */
const gpuGroupSchema = gpuSchema.extend({ count: z.number().int().positive().max(GPUS_MAX) });

/** See shared/seal/seal-candidates.ts. */
const sealSchema = z.object({
  v: z.literal(1),
  kid: text(16),
  /** Seconds since 1970, UTC. */
  until: z.number().int().nonnegative(),
  vouch: text(512).optional(),
  evidence: z.array(text(16)).max(4).optional(),
});

/** Models listed here; a node may store more. */
export const WEIGHTS_SHOWN_MAX = 8;

const keptWeightsSchema = z.object({
  /** The hub's `org/name`, or the last part of a path. */
  name: text(96),
  /** 0 to 100. */
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
  /** Name of the machine: two observers on one host count as one. */
  host: text(255).optional(),
  /** Where its mesh listens, `HOST:PORT`; none: not reachable directly. */
  addresses: z.array(text(255)).max(8),
  /** It relays for agents that cannot reach each other (`--offer-relay`); absent: it does not. */
  relay: z.boolean().optional(),
  /** A raw X25519 key, base64url, to which clients seal requests. */
  encryption_key: text(64).optional(),
  /** For that key. If this version cannot decode it, the node stays as it is, without sealed requests. */
  seal: sealSchema.optional().catch(undefined),
  /**
   * It stores weights for its neighbors, currently of these models; absent: it does not. What this version cannot
   * decode counts as absent.
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
 * Undefined if it cannot be decoded. Merging does not check this: a replica that refused what another understands would
 * never agree with it again. An undecodable payload is stored, passed on, and not routed to.
 */
export function decodePayload(bytes: Uint8Array): NodePayload | undefined {
  try {
    return nodePayloadSchema.safeParse(JSON.parse(decoder.decode(bytes))).data;
  } catch {
    return undefined;
  }
}
