/** What a node tells about itself beside its state: JSON, so that newer agents can say more than older replicas understand. */
import * as z from 'zod';
import { LatticeError } from './error.ts';
import { GPUS_MAX, gpuSchema, nodeRecordSchema } from './node.ts';

/** Bounds what one session can make every replica hold. */
export const PAYLOAD_MAX_BYTES = 4096;

const text = (max: number) => z.string().max(max);

/** Like devices are one row. */
const gpuGroupSchema = gpuSchema.extend({ count: z.number().int().positive().max(GPUS_MAX) });

/** See shared/seal/node-seal.ts. */
const sealSchema = z.object({
  v: z.literal(1),
  kid: text(16),
  /** Seconds since 1970, UTC. */
  until: z.number().int().nonnegative(),
  vouch: text(512).optional(),
  evidence: z.array(text(16)).max(4).optional(),
});

/** Models named here; a node may keep more. */
export const KEPT_WEIGHTS_MAX = 8;

const keptWeightsSchema = z.object({
  /** `org/name` of the hub; the last part of a path otherwise. */
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
  /** It lets agents meet that cannot reach each other (`--offer-relay`); absent: it does not. */
  relay: z.boolean().optional(),
  /** A raw X25519 key, base64url: what clients seal requests to. */
  encryption_key: text(64).optional(),
  /** Of that key; one that this version cannot read leaves the node as it is, without sealed requests. */
  seal: sealSchema.optional().catch(undefined),
  /** It keeps weights for its neighbours, and these models so far; absent: it does not. What this version cannot read counts as absent. */
  weights: z.array(keptWeightsSchema).max(KEPT_WEIGHTS_MAX).optional().catch(undefined),
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
 * Undefined where it cannot be read. Merging does not ask: a replica that refused what another understands would never
 * agree with it again. What cannot be read is held, passed on, and not routed to.
 */
export function decodePayload(bytes: Uint8Array): NodePayload | undefined {
  try {
    return nodePayloadSchema.safeParse(JSON.parse(decoder.decode(bytes))).data;
  } catch {
    return undefined;
  }
}
