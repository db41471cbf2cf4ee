/** Certificate signing requests (PKCS #10, RFC 2986) for DNS names, with a P-256 key. */
import { createPublicKey, type KeyObject, sign } from 'node:crypto';

// Tags of DER (X.690 §8).
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const SEQUENCE = 0x30;
const SET = 0x31;
/** The attributes of a request. */
const CONTEXT_0 = 0xa0;
/** dNSName in a GeneralName (RFC 5280 §4.2.1.6). */
const DNS_NAME = 0x82;

// Object identifiers with tag and length.
const EXTENSION_REQUEST = Buffer.from('06092a864886f70d01090e', 'hex');
const SUBJECT_ALT_NAME = Buffer.from('0603551d11', 'hex');
const ECDSA_WITH_SHA256 = Buffer.from('06082a8648ce3d040302', 'hex');
/** An extension is critical if the subject is empty (RFC 5280 §4.2.1.6). */
const CRITICAL = Buffer.from('0101ff', 'hex');
const NO_UNUSED_BITS = Buffer.from([0]);

/** Returns the request in DER. The subject is empty, as authorities recommend: the names are an extension. */
export function certificateRequest(key: KeyObject, names: readonly string[]): Buffer {
  const altNames = der(SEQUENCE, ...names.map((name) => der(DNS_NAME, Buffer.from(name, 'latin1'))));
  const extension = der(SEQUENCE, SUBJECT_ALT_NAME, CRITICAL, der(OCTET_STRING, altNames));
  const attribute = der(SEQUENCE, EXTENSION_REQUEST, der(SET, der(SEQUENCE, extension)));
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' });
  const info = der(SEQUENCE, der(INTEGER, Buffer.from([0])), der(SEQUENCE), publicKey, der(CONTEXT_0, attribute));
  const signature = der(BIT_STRING, NO_UNUSED_BITS, sign('sha256', info, key));
  return der(SEQUENCE, info, der(SEQUENCE, ECDSA_WITH_SHA256), signature);
}

/** Encodes a value: its tag, its length and its content. */
function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const bytes = Buffer.concat(content);
  return Buffer.concat([Buffer.from([tag, ...lengthOf(bytes.length)]), bytes]);
}

/** Lengths above 127 have a first byte with the number of bytes that follow (X.690 §8.1.3). */
function lengthOf(length: number): readonly number[] {
  if (length < 0x80) return [length];
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return [0x80 + bytes.length, ...bytes];
}
