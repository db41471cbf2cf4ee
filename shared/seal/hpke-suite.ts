/**
 * Names and sizes of the only cipher suite: DHKEM(X25519), HKDF-SHA256, AES-256-GCM (RFC 9180 §7).
 * docs/design/sealed-wire.md has the format.
 */
import { encodeAscii } from './portable-bytes.ts';

/** The IANA numbers of KEM, KDF and AEAD, two bytes each. */
export const SUITE = new Uint8Array([0x00, 0x20, 0x00, 0x01, 0x00, 0x02]);

export const SEAL_KEY_BYTES = 32;
/** Nk and Nn of AES-256-GCM: length of the key and of the nonce in bytes. */
export const AEAD_KEY_BYTES = 32;
export const AEAD_NONCE_BYTES = 12;
export const TAG_BYTES = 16;
/** Length of an encapsulated X25519 key in bytes. */
export const ENC_BYTES = 32;
export const KID_BYTES = 8;
/** Length of a request's nonce in bytes. The nonce identifies the request and serves as salt. */
export const NONCE_BYTES = 16;
/** Length of the content-encryption key in bytes. */
export const CEK_BYTES = 32;
export const SHA256_BYTES = 32;
/** Length of a response's nonce in bytes: max(Nn, Nk), as in RFC 9458 §4.4. */
export const RESPONSE_NONCE_BYTES = 32;

export const LABEL_KID = encodeAscii('otela seal 1');
export const LABEL_REQUEST = encodeAscii('otela seal 1 request');
export const LABEL_RESPONSE = encodeAscii('otela seal 1 response');
/** Label for a stream that another candidate may continue. */
export const LABEL_RESUMABLE = encodeAscii('otela seal 1 resumable answer');
export const LABEL_BODY_KEY = encodeAscii('otela seal 1 body key');
export const LABEL_BODY_NONCE = encodeAscii('otela seal 1 body nonce');
export const LABEL_EVIDENCE = encodeAscii('otela seal 1 evidence');
export const LABEL_DELEGATE = encodeAscii('otela seal 1 delegate');
export const LABEL_VOUCH = encodeAscii('otela seal 1 vouch');
/** Labels of RFC 9458 §4.4. */
export const LABEL_KEY = encodeAscii('key');
export const LABEL_NONCE = encodeAscii('nonce');

/**
 * Additional authenticated data of a chunk: AAD_FINAL for the last chunk of a stream, AAD_CHUNK for all others. If a
 * stream was cut off, it has no chunk with AAD_FINAL.
 */
export const AAD_CHUNK = new Uint8Array(0);
export const AAD_FINAL = encodeAscii('final');

/** Maximum size of a sealed chunk with its tag. All receivers of chunked OHTTP accept this size. */
export const CHUNK_MAX_BYTES = 16_384;

export const SEALED_TYPE = 'application/otela-sealed';
/** Media type of a sealed answer that contains an event stream and is sent chunk by chunk. */
export const SEALED_STREAM_TYPE = 'application/otela-sealed; stream=1';

export const SEAL_HEADER = 'x-otela-seal';
export const SEAL_TO_HEADER = 'x-otela-seal-to';
/** Clear-text headers of a sealed request, covered by the seal. */
export const MODEL_HEADER = 'x-otela-model';
export const STREAM_HEADER = 'x-otela-stream';
export const RESUME_HEADER = 'x-otela-resume';

/**
 * Header from a gateway to a node with a number N: the first N bytes of the body are the request, and the rest are
 * frames of the answer that broke off.
 */
export const CONTINUES_HEADER = 'x-otela-seal-continues';

/**
 * Maximum bytes of answer frames that another node can continue: 15,000 events of one token. If the answer is longer,
 * it ends with its node.
 */
export const CONTINUED_MAX_BYTES = 4 * 1024 * 1024;

/**
 * Size limit of a sealed request, which a node holds in memory completely. Equal to the largest unsealed body that
 * gateways accept.
 */
export const SEALED_BODY_MAX_BYTES = 36 * 1024 * 1024;

/** Maximum time from `at` to `until` of a request. A node remembers the nonces of answered requests for as long. */
export const SEALED_LIFE_MAX_S = 20 * 60;
/** Number of seconds by which a client's clock may be ahead of the node's. */
export const CLOCK_AHEAD_MAX_S = 120;

export function isSealedType(contentType: string | null | undefined): boolean {
  return /^application\/otela-sealed\b/i.test(contentType ?? '');
}
