/** The issuer's word that a session has left, signed by any of its gateways. */
import { ByteReader, ByteWriter, hex } from './bytes.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  type CertificateCache,
  decodeCertificate,
  openCertificate,
} from './certificate.ts';
import { type Crypto, SIGNATURE_BYTES, type Signer } from './crypto.ts';
import { LatticeError } from './error.ts';
import { ID_PATTERN } from './node.ts';
import { packSession, readSession, SESSION_BYTES } from './session.ts';

export interface Eviction {
  readonly bytes: Uint8Array;
  readonly session: string;
  /** An id such as `silent` or `operator`. */
  readonly reason: string;
  readonly certificate: Certificate;
  /** Hex SHA-256 of `bytes`: decides between two evictions by one key. */
  readonly hash: string;
}

const REASON_MAX_BYTES = 63;
export const EVICTION_MAX_BYTES = CERTIFICATE_BYTES + SESSION_BYTES + 1 + REASON_MAX_BYTES + SIGNATURE_BYTES;

export function signEviction(
  fields: { session: string; reason: string; certificate: Uint8Array },
  gateway: Signer,
  crypto: Pick<Crypto, 'sha256'>,
): Uint8Array {
  const certificate = decodeCertificate(fields.certificate);
  const own = new ByteWriter().bytes(packSession(fields.session)).text(fields.reason).done();
  const signature = gateway.sign(message(certificate, own));
  const bytes = new ByteWriter().bytes(certificate.bytes).bytes(own).bytes(signature).done();
  decodeEviction(bytes, crypto);
  return bytes;
}

/** @throws LatticeError truncated, malformed, too_large */
export function decodeEviction(bytes: Uint8Array, crypto: Pick<Crypto, 'sha256'>): Eviction {
  if (bytes.length > EVICTION_MAX_BYTES) throw new LatticeError('too_large', `eviction of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const certificate = decodeCertificate(input.bytes(CERTIFICATE_BYTES));
  const session = readSession(input);
  const reason = input.text(REASON_MAX_BYTES);
  if (!ID_PATTERN.test(reason)) throw new LatticeError('malformed', 'the reason is no id');
  input.bytes(SIGNATURE_BYTES);
  input.end();
  return { bytes, session, reason, certificate, hash: hex(crypto.sha256(bytes)) };
}

/** @throws LatticeError bad_signature */
export function verifyEviction(eviction: Eviction, crypto: Crypto, cache?: CertificateCache): Eviction {
  const certificate = openCertificate(eviction.certificate.bytes, crypto, cache);
  const at = eviction.bytes.length - SIGNATURE_BYTES;
  const own = eviction.bytes.subarray(CERTIFICATE_BYTES, at);
  if (!crypto.verify(certificate.key, message(certificate, own), eviction.bytes.subarray(at))) {
    throw new LatticeError('bad_signature', 'the eviction is not signed by its certified key');
  }
  return { ...eviction, certificate };
}

export function openEviction(bytes: Uint8Array, crypto: Crypto, cache?: CertificateCache): Eviction {
  return verifyEviction(decodeEviction(bytes.slice(), crypto), crypto, cache);
}

function message(certificate: Certificate, own: Uint8Array): Uint8Array {
  return new ByteWriter().label('eviction').bytes(certificate.root).bytes(certificate.key).bytes(own).done();
}
