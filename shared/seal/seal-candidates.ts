/** What a node's record contains for sealing, and what the discovery route returns for a node. */
import { isRecord } from './is-record.ts';

/** In the record's payload, beside `encryption_key`. */
interface NodeSeal {
  v: 1;
  /** base64url of the first 8 bytes of SHA-256("otela seal 1" ‖ key). */
  kid: string;
  /** Seconds since 1970, UTC. The node opens what is sealed to the key until then. */
  until: number;
  /** See key-vouch.ts. */
  vouch?: string | undefined;
  /** Kinds of evidence that the node has about its machine. Absent: none. See evidence.ts. */
  evidence?: string[] | undefined;
}

/** One node of `GET /v1/otela/seal`. */
export interface SealCandidate extends NodeSeal {
  session: string;
  provider: string;
  /** base64url of the raw X25519 key. */
  key: string;
}

export interface SealCandidates {
  object: 'list';
  model: string;
  data: SealCandidate[];
}

/**
 * Ignores entries that are not valid nodes, because the gateway may be newer than the client. Undefined: not such an
 * answer at all.
 */
export function readSealCandidates(answer: unknown): SealCandidate[] | undefined {
  if (!isRecord(answer) || !Array.isArray(answer.data)) return undefined;
  return answer.data.flatMap((one: unknown) => {
    if (!isRecord(one)) return [];
    const { session, provider, key, kid, until, vouch, evidence, v } = one;
    if (v !== 1 || typeof session !== 'string' || typeof provider !== 'string' || typeof key !== 'string') return [];
    if (typeof kid !== 'string' || typeof until !== 'number') return [];
    const kinds = Array.isArray(evidence) ? evidence.filter((kind) => typeof kind === 'string') : [];
    const more = { ...(typeof vouch === 'string' && { vouch }), ...(kinds.length > 0 && { evidence: kinds }) };
    return [{ v, session, provider, key, kid, until, ...more }];
  });
}
