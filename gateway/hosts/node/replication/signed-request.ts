/**
 * Signs and verifies messages between the gateways of one institution with their keys, which the common root certifies.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { fromBase64url, toBase64url } from '../../../../shared/lattice/base64url.ts';
import { SIGNATURE_BYTES } from '../../../../shared/lattice/crypto-interface.ts';
import {
  CERTIFICATE_BYTES,
  type Certificate,
  openCertificate,
} from '../../../../shared/lattice/gateway-certificate.ts';
import { workerdCrypto, workerdSigner } from '../../../issuer/ed25519.ts';
import type { GatewayKey } from '../../../issuer/issuer.ts';

export const SIGNED_HEADER = 'x-otela-gateway';
const NONCE_BYTES = 16;
const HEADER_MAX_CHARS = 512;
/**
 * Maximum difference between the clocks of two gateways, in seconds. A replay within this time changes nothing, or is
 * refused.
 */
export const CLOCK_SKEW_S = 3600;

/** This gateway's identity for the other gateways of its institution. */
export interface GatewayIdentity {
  key: GatewayKey;
  certificate: Certificate;
  /** Names of the keys that the root key revoked. */
  revoked: ReadonlySet<string>;
}

/** The signature is missing or invalid; the message says why. */
export class SignatureError extends Error {}

interface Signed {
  /** The signed data: method and path, or the nonce of the answered request. */
  about: string;
  body: Uint8Array;
}

/** Returns the header's value: certificate, seconds, nonce, signature, digest of the body. */
export function signRequest(
  identity: GatewayIdentity,
  { about, body }: Signed,
  nowS: number,
): { header: string; nonce: string } {
  const nonce = randomBytes(NONCE_BYTES).toString('base64url');
  const digest = digestOf(body);
  const signature = workerdSigner(seedOf(identity.key)).sign(message(about, digest, nowS, nonce));
  const certificate = toBase64url(identity.certificate.bytes);
  return { header: `${certificate}.${nowS}.${nonce}.${toBase64url(signature)}.${digest}`, nonce };
}

export interface VerifiedRequest {
  certificate: Certificate;
  nonce: string;
  /** How many seconds the sender's clock is ahead of this gateway's. */
  aheadS: number;
}

/** Verifies a message and returns its sender. @throws SignatureError */
export function verifyRequest(
  identity: GatewayIdentity,
  header: string | undefined | null,
  { about, body }: Signed,
  nowS: number,
): VerifiedRequest {
  const digest = digestOf(body);
  const verified = verifyHeader(identity, header, { about, digest }, nowS);
  if ((claimedDigest(header ?? '') ?? digest) !== digest)
    throw new SignatureError('the digest does not match the body');
  return verified;
}

/**
 * Returns the body's digest in the header, before the body has arrived; undefined: the sender has an earlier version.
 */
export function claimedDigest(header: string): string | undefined {
  return header.split('.')[4];
}

export function digestOf(body: Uint8Array): string {
  return createHash('sha256').update(body).digest('base64url');
}

/** Verifies the sender of a body with this digest. @throws SignatureError */
export function verifyHeader(
  identity: GatewayIdentity,
  header: string | undefined | null,
  signed: { about: string; digest: string },
  nowS: number,
): VerifiedRequest {
  if (header === undefined || header === null || header.length > HEADER_MAX_CHARS)
    throw new SignatureError(`${SIGNED_HEADER} is missing or too long`);
  const [certificateText = '', seconds = '', nonce = '', signatureText = ''] = header.split('.');
  const bytes = fromBase64url(certificateText, CERTIFICATE_BYTES);
  const signature = fromBase64url(signatureText, SIGNATURE_BYTES);
  if (bytes === undefined || signature === undefined || !/^\d{1,12}$/.test(seconds) || nonce.length !== 22)
    throw new SignatureError(`${SIGNED_HEADER} is malformed`);
  let certificate: Certificate;
  try {
    certificate = openCertificate(bytes, workerdCrypto);
  } catch (cause) {
    throw new SignatureError('the certificate is not valid', { cause });
  }
  if (!timingSafeEqual(certificate.root, identity.certificate.root))
    throw new SignatureError('the gateway belongs to another institution');
  if (identity.revoked.has(certificate.keyName)) throw new SignatureError('the key of this gateway was revoked');
  if (certificate.notAfter <= nowS || certificate.notBefore > nowS + CLOCK_SKEW_S)
    throw new SignatureError('the certificate of this gateway is not valid now');
  if (Math.abs(Number(seconds) - nowS) > CLOCK_SKEW_S)
    throw new SignatureError(`the clocks of the two gateways differ by more than ${CLOCK_SKEW_S} s`);
  const good = workerdCrypto.verify(
    certificate.key,
    message(signed.about, signed.digest, Number(seconds), nonce),
    signature,
  );
  if (!good) throw new SignatureError('the signature is not valid');
  return { certificate, nonce, aheadS: Number(seconds) - nowS };
}

function message(about: string, digest: string, seconds: number, nonce: string): Uint8Array {
  return Buffer.from(`otela gateway to gateway\n${about}\n${digest}\n${seconds}\n${nonce}`);
}

function seedOf({ key }: GatewayKey): Uint8Array {
  return fromBase64url(key.trim(), 32) ?? new Uint8Array();
}
