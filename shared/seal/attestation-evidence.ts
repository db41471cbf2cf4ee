/**
 * A machine's attestation evidence, which is bound to the machine's encryption key and to the client's nonce.
 * docs/design/sealed-wire.md has the format.
 */
import { fromBase64url } from '../lattice/base64url.ts';
import { LABEL_EVIDENCE, SEAL_KEY_BYTES } from './hpke-suite.ts';
import { isRecord } from './is-record.ts';
import { concatBytes, lengthPrefixed } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';

/** Path of the request for evidence. The request is sealed to one node, so no other node can answer it. */
export const EVIDENCE_PATH = '/v1/otela/evidence';
export const EVIDENCE_NONCE_BYTES = 32;
/** Maximum size of the evidence. The reports of a processor and of eight GPUs with their certificates are smaller. */
export const EVIDENCE_MAX_BYTES = 256 * 1024;

/** Kinds of evidence, named by the site, such as `tdx`, `snp`, `nvidia`. */
export const EVIDENCE_KIND = /^[a-z0-9-]{1,16}$/;
export const EVIDENCE_KINDS_MAX = 4;

/** The `report_data` of the evidence is the SHA-512 of this message. @param key raw X25519 */
export function evidenceMessage(key: Uint8Array, nonce: Uint8Array): Uint8Array<ArrayBuffer> {
  return concatBytes(LABEL_EVIDENCE, new Uint8Array([0]), lengthPrefixed(key), lengthPrefixed(nonce));
}

/** Reads the nonce from the body of an evidence request. @throws SealError malformed */
export function readEvidenceRequest(body: unknown): Uint8Array {
  const nonce =
    isRecord(body) && typeof body.nonce === 'string' ? fromBase64url(body.nonce, SEAL_KEY_BYTES) : undefined;
  if (nonce?.length !== EVIDENCE_NONCE_BYTES) throw new SealError('malformed', 'the nonce must have 32 bytes');
  return nonce;
}

export interface EvidenceAnswer {
  object: 'otela.evidence';
  kinds: string[];
  /** Output of the site's helper program, base64. */
  evidence: string;
}

/** Reads an answer to an evidence request; undefined if it is not valid. */
export function readEvidenceAnswer(answer: unknown): Pick<EvidenceAnswer, 'kinds' | 'evidence'> | undefined {
  if (!isRecord(answer) || !Array.isArray(answer.kinds) || typeof answer.evidence !== 'string') return undefined;
  const kinds = answer.kinds.filter((kind) => typeof kind === 'string' && EVIDENCE_KIND.test(kind));
  return { kinds: kinds.slice(0, EVIDENCE_KINDS_MAX), evidence: answer.evidence };
}
