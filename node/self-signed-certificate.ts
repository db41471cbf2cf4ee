/**
 * Builds an X.509 certificate (RFC 5280, Ed25519 by RFC 8410 §4): a fixed template around a public key, self-signed.
 * TLS needs a certificate to carry the key. Between agents, the peer uses only the key, and compares it with the
 * ticket's. An agent of `otela up` trusts this one certificate for the name `otela`.
 */
import type { Signer } from '../shared/lattice/crypto-interface.ts';

const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;

const ALGORITHM = '300506032b6570';
/** The name CN=otela in DER */
const NAME = '3010310e300c06035504030c056f74656c61';
/**
 * Valid from 1970 to the last second that the format can express (RFC 5280 §4.1.2.5), so that validity depends on no
 * clock.
 */
const VALIDITY = `3020170d${hex('700101000000Z')}180f${hex('99991231235959Z')}`;
/** The first fields: version 3, serial number 1, names and validity. */
const HEAD = `a003020102020101${ALGORITHM}${NAME}${VALIDITY}${NAME}`;
/** SubjectPublicKeyInfo up to the key bytes. */
const KEY_HEAD = `302a${ALGORITHM}032100`;

function hex(text: string): string {
  return Buffer.from(text, 'latin1').toString('hex');
}

/** Encodes a DER SEQUENCE. The lengths used here need one byte, or two with the prefix 0x81. */
function sequence(content: Buffer): Buffer {
  const length = content.length < 0x80 ? [content.length] : [0x81, content.length];
  return Buffer.concat([Buffer.from([0x30, ...length]), content]);
}

/** The certificate as PEM, for `tls.createSecureContext`. */
export function selfSignedCertificate(key: Signer): string {
  if (key.publicKey.length !== KEY_BYTES)
    throw new RangeError(`an Ed25519 key cannot have ${key.publicKey.length} bytes`);
  const body = sequence(Buffer.concat([Buffer.from(HEAD + KEY_HEAD, 'hex'), key.publicKey]));
  const signature = key.sign(body);
  if (signature.length !== SIGNATURE_BYTES) throw new RangeError(`a signature cannot have ${signature.length} bytes`);
  const seal = Buffer.concat([Buffer.from(`${ALGORITHM}034100`, 'hex'), signature]);
  const der = sequence(Buffer.concat([body, seal]));
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`;
}
