/**
 * An issuer's statements about its gateways' keys. A watermark drops all sessions that the key admitted and that ended
 * before a time. A revocation makes everything invalid that the key admitted. Each statement concerns only one key, so
 * a stolen key or a gateway's wrong clock harms no nodes that other keys admitted.
 */
import { ByteReader, ByteWriter, copyBytes } from './byte-codec.ts';
import { type Crypto, KEY_BYTES, SIGNATURE_BYTES, type Signer } from './crypto-interface.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  type CertificateCache,
  decodeCertificate,
  keyName,
  openCertificate,
} from './gateway-certificate.ts';
import { LatticeError } from './lattice-error.ts';
import { TICKET_LIFE_MAX_S } from './ticket.ts';

/**
 * Drops from the registry the sessions that `certificate.key` admitted and that have tickets that ended before `at`.
 */
export interface GcWatermark {
  readonly bytes: Uint8Array;
  readonly certificate: Certificate;
  /** Seconds since 1970. */
  readonly at: number;
}

/**
 * Signed by the root. Drops every session that `key` admitted, even if the session's ticket says that it is older than
 * the theft of the key, because a thief can date tickets freely. If the root names itself, the whole issuer is revoked.
 */
export interface Revocation {
  readonly bytes: Uint8Array;
  readonly root: Uint8Array;
  readonly key: Uint8Array;
  readonly keyName: string;
}

export const GC_WATERMARK_BYTES = CERTIFICATE_BYTES + 4 + SIGNATURE_BYTES;
export const REVOCATION_BYTES = 2 * KEY_BYTES + SIGNATURE_BYTES;

export function signGcWatermark(fields: { certificate: Uint8Array; at: number }, gateway: Signer): Uint8Array {
  const certificate = decodeCertificate(fields.certificate);
  const signature = gateway.sign(gcWatermarkMessage(certificate, fields.at));
  const bytes = new ByteWriter().bytes(certificate.bytes).u32(fields.at).bytes(signature).done();
  decodeGcWatermark(bytes);
  return bytes;
}

/** @throws LatticeError truncated, malformed, outside_validity */
export function decodeGcWatermark(bytes: Uint8Array): GcWatermark {
  const input = new ByteReader(bytes);
  const certificate = decodeCertificate(input.bytes(CERTIFICATE_BYTES));
  const at = input.u32();
  input.bytes(SIGNATURE_BYTES);
  input.end();
  // A watermark with a later time could drop no further ticket of this certificate, so its clock was wrong. This check
  // uses only the bytes, so that all replicas refuse the same watermarks.
  if (at > certificate.notAfter + TICKET_LIFE_MAX_S)
    throw new LatticeError('outside_validity', 'the watermark is outside the validity of its certificate');
  return { bytes, certificate, at };
}

/** @throws LatticeError */
export function openGcWatermark(bytes: Uint8Array, crypto: Crypto, cache?: CertificateCache): GcWatermark {
  const watermark = decodeGcWatermark(copyBytes(bytes));
  const certificate = openCertificate(watermark.certificate.bytes, crypto, cache);
  const signature = watermark.bytes.subarray(GC_WATERMARK_BYTES - SIGNATURE_BYTES);
  if (!crypto.verify(certificate.key, gcWatermarkMessage(certificate, watermark.at), signature)) {
    throw new LatticeError('bad_signature', 'the watermark is not signed by its certified key');
  }
  return { ...watermark, certificate };
}

export function signRevocation(key: Uint8Array, root: Signer): Uint8Array {
  const body = new ByteWriter().bytes(root.publicKey).bytes(key).done();
  const bytes = new ByteWriter()
    .bytes(body)
    .bytes(root.sign(revocationMessage(body)))
    .done();
  decodeRevocation(bytes);
  return bytes;
}

/** @throws LatticeError truncated, malformed */
export function decodeRevocation(bytes: Uint8Array): Revocation {
  const input = new ByteReader(bytes);
  const root = input.bytes(KEY_BYTES);
  const key = input.bytes(KEY_BYTES);
  input.bytes(SIGNATURE_BYTES);
  input.end();
  return { bytes, root, key, keyName: keyName(key) };
}

/** @throws LatticeError */
export function openRevocation(bytes: Uint8Array, crypto: Crypto): Revocation {
  const revocation = decodeRevocation(copyBytes(bytes));
  const at = REVOCATION_BYTES - SIGNATURE_BYTES;
  if (!crypto.verify(revocation.root, revocationMessage(bytes.subarray(0, at)), bytes.subarray(at))) {
    throw new LatticeError('bad_signature', 'the revocation is not signed by its root');
  }
  return revocation;
}

function gcWatermarkMessage(certificate: Certificate, at: number): Uint8Array {
  return new ByteWriter().label('floor').bytes(certificate.root).bytes(certificate.key).u32(at).done();
}

function revocationMessage(body: Uint8Array): Uint8Array {
  return new ByteWriter().label('revocation').bytes(body).done();
}
