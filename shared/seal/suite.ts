/** Names and sizes of the one suite: DHKEM(X25519), HKDF-SHA256, AES-256-GCM (RFC 9180 §7). docs/sealed-wire.md has the format. */
import { ascii } from './bytes.ts';

/** KEM, KDF and AEAD by their numbers at IANA, two bytes each. */
export const SUITE = new Uint8Array([0x00, 0x20, 0x00, 0x01, 0x00, 0x02]);

export const KEY_BYTES = 32;
/** Nk and Nn of AES-256-GCM. */
export const AEAD_KEY_BYTES = 32;
export const AEAD_NONCE_BYTES = 12;
export const TAG_BYTES = 16;
/** An encapsulated X25519 key. */
export const ENC_BYTES = 32;
export const KID_BYTES = 8;
/** Names a request, and is its salt. */
export const NONCE_BYTES = 16;
/** The content-encryption key. */
export const CEK_BYTES = 32;
export const DIGEST_BYTES = 32;
/** max(Nn, Nk), as RFC 9458 §4.4 has it. */
export const RESPONSE_NONCE_BYTES = 32;

export const LABEL_KID = ascii('otela seal 1');
export const LABEL_REQUEST = ascii('otela seal 1 request');
export const LABEL_RESPONSE = ascii('otela seal 1 response');
/** Of a stream that another candidate may go on with. */
export const LABEL_RESUMABLE = ascii('otela seal 1 resumable answer');
export const LABEL_BODY_KEY = ascii('otela seal 1 body key');
export const LABEL_BODY_NONCE = ascii('otela seal 1 body nonce');
export const LABEL_EVIDENCE = ascii('otela seal 1 evidence');
export const LABEL_DELEGATE = ascii('otela seal 1 delegate');
export const LABEL_VOUCH = ascii('otela seal 1 vouch');
/** RFC 9458 §4.4. */
export const LABEL_KEY = ascii('key');
export const LABEL_NONCE = ascii('nonce');

/** Additional data of every chunk but the last, and of the last one: a stream that was cut has none of these. */
export const AAD_CHUNK = new Uint8Array(0);
export const AAD_FINAL = ascii('final');

/** A sealed chunk with its tag: what every receiver of chunked OHTTP takes. */
export const CHUNK_MAX_BYTES = 16_384;

export const SEALED_TYPE = 'application/otela-sealed';
/** A sealed answer whose inside is an event stream: it goes out piece by piece. */
export const SEALED_STREAM_TYPE = 'application/otela-sealed; stream=1';

export const SEAL_HEADER = 'x-otela-seal';
export const SEAL_TO_HEADER = 'x-otela-seal-to';
/** What a sealed request says in clear, bound by the seal. */
export const MODEL_HEADER = 'x-otela-model';
export const STREAM_HEADER = 'x-otela-stream';
export const RESUME_HEADER = 'x-otela-resume';

/** From a gateway to a node: so many bytes of the body are the request, the rest are frames of the answer that breaks off. */
export const CONTINUES_HEADER = 'x-otela-seal-continues';

/** Frames of an answer that another node goes on behind, bytes: 15,000 events of a token each. A longer answer ends with its node. */
export const CONTINUED_MAX_BYTES = 4 * 1024 * 1024;

/** Of a request, sealed: nodes hold it whole. As large as the largest body that gateways take in clear. */
export const SEALED_BODY_MAX_BYTES = 36 * 1024 * 1024;

/** From `at` to `until` of a request at most: so long a node remembers what it answered. */
export const LIFE_MAX_S = 20 * 60;
/** How far a client's clock may be ahead. */
export const AHEAD_MAX_S = 120;

export function isSealedType(contentType: string | null | undefined): boolean {
  return /^application\/otela-sealed\b/i.test(contentType ?? '');
}
