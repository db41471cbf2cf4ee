/** The sealing fields of a node's record, and the candidates in the answer of `GET /v1/otela/seal`. */
import { isRecord } from './is-record.ts';

/** The `seal` field of the record's payload. The key itself is in `encryption_key`. */
interface NodeSeal {
  v: 1;
  /** Id of the key: base64url of the first 8 bytes of SHA-256("otela seal 1" ‖ key). */
  kid: string;
  /** Seconds since 1970, UTC, until which the node decrypts requests that are sealed to the key. */
  until: number;
  /** The provider's signature for the key; see key-vouch.ts. */
  vouch?: string | undefined;
  /** Kinds of attestation evidence that the node can provide; absent if it has none. See attestation-evidence.ts. */
  evidence?: string[] | undefined;
}

/** One node in the answer of `GET /v1/otela/seal`. */
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
 * Reads the answer of `GET /v1/otela/seal`. Entries that are not valid are ignored, because the gateway may be newer
 * than the client. Undefined if the answer as a whole has another form.
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
