/**
 * An issuer is an institution's root key. It certifies its gateways' keys, and these gateway keys sign tickets,
 * evictions and watermarks. `open…` verifies signatures; `decode…` only parses.
 */
import { base32 } from './base32.ts';
import { ByteReader, ByteWriter, copyBytes } from './byte-codec.ts';
import { type Crypto, KEY_BYTES, SIGNATURE_BYTES, type Signer } from './crypto-interface.ts';
import { LatticeError } from './lattice-error.ts';

export interface Certificate {
  readonly bytes: Uint8Array;
  readonly root: Uint8Array;
  /** The gateway's public key. */
  readonly key: Uint8Array;
  /** `key` in base32, as used in maps. */
  readonly keyName: string;
  /** First second of validity, in seconds since 1970. */
  readonly notBefore: number;
  /** First second in which the certificate is no longer valid, in seconds since 1970. */
  readonly notAfter: number;
}

export const CERTIFICATE_BYTES = 2 * KEY_BYTES + 8 + SIGNATURE_BYTES;
const ISSUER_CHARS = 26;

/** An issuer's id, derived from its root key. */
export function issuerId(root: Uint8Array, crypto: Pick<Crypto, 'sha256'>): string {
  return base32(crypto.sha256(new ByteWriter().label('issuer').bytes(root).done()), ISSUER_CHARS);
}

/** The name of a key: 52 characters of base32. */
export function keyName(key: Uint8Array): string {
  return base32(key);
}

interface CertificateFields {
  key: Uint8Array;
  notBefore: number;
  notAfter: number;
}

export function signCertificate(fields: CertificateFields, root: Signer): Uint8Array {
  const { key, notBefore, notAfter } = fields;
  const body = new ByteWriter().bytes(root.publicKey).bytes(key).u32(notBefore).u32(notAfter).done();
  const certificate = new ByteWriter()
    .bytes(body)
    .bytes(root.sign(message(body)))
    .done();
  decodeCertificate(certificate);
  return certificate;
}

/** @throws LatticeError truncated, malformed */
export function decodeCertificate(bytes: Uint8Array): Certificate {
  const input = new ByteReader(bytes);
  const root = input.bytes(KEY_BYTES);
  const key = input.bytes(KEY_BYTES);
  const notBefore = input.u32();
  const notAfter = input.u32();
  input.bytes(SIGNATURE_BYTES);
  input.end();
  const name = keyName(key);
  if (notAfter <= notBefore) throw new LatticeError('malformed', 'the certificate ends before it begins');
  // A revocation of the root's own key revokes the whole issuer. So no gateway may have the root key as its key.
  if (name === keyName(root)) throw new LatticeError('malformed', 'a root key must certify a key other than itself');
  return { bytes, root, key, keyName: name, notBefore, notAfter };
}

/** Verified certificates by their bytes, because a thousand tickets carry the same certificate. */
export type CertificateCache = Map<string, Certificate>;
/**
 * Maximum size of the cache; a full cache is cleared. If a peer sends new certificates without end, this replica
 * verifies them, but does not keep them all.
 */
const CACHE_MAX = 256;

/** @throws LatticeError truncated, malformed, bad_signature */
export function openCertificate(bytes: Uint8Array, crypto: Crypto, cache?: CertificateCache): Certificate {
  const name = cache === undefined ? '' : base32(bytes);
  const known = cache?.get(name);
  if (known !== undefined) return known;
  const certificate = decodeCertificate(copyBytes(bytes));
  const body = bytes.subarray(0, CERTIFICATE_BYTES - SIGNATURE_BYTES);
  const signature = bytes.subarray(CERTIFICATE_BYTES - SIGNATURE_BYTES);
  if (!crypto.verify(certificate.root, message(body), signature)) {
    throw new LatticeError('bad_signature', 'the certificate is not signed by its root');
  }
  if (cache !== undefined) {
    if (cache.size >= CACHE_MAX) cache.clear();
    cache.set(name, certificate);
  }
  return certificate;
}

function message(body: Uint8Array): Uint8Array {
  return new ByteWriter().label('certificate').bytes(body).done();
}
