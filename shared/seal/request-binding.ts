/**
 * The clear-text fields of a sealed request. The seal covers them, so if one is changed, the request cannot be
 * decrypted.
 */
import { fromBase64url, toBase64url } from '../lattice/base64url.ts';
import {
  CEK_BYTES,
  CLOCK_AHEAD_MAX_S,
  ENC_BYTES,
  KID_BYTES,
  LABEL_REQUEST,
  MODEL_HEADER,
  NONCE_BYTES,
  RESUME_HEADER,
  SEAL_HEADER,
  SEAL_TO_HEADER,
  SEALED_LIFE_MAX_S,
  SHA256_BYTES,
  SUITE,
  TAG_BYTES,
} from './hpke-suite.ts';
import { concatBytes, lengthPrefixed, u32, utf8Bytes } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';

interface SealStamp {
  /** 16 random bytes, different for each request. */
  nonce: Uint8Array;
  /** Seconds since 1970, UTC. `at`: time of creation. `until`: time from which on the request must not be answered. */
  at: number;
  until: number;
}

export interface Binding extends SealStamp {
  /** Path of the endpoint, for example `/v1/chat/completions`. */
  path: string;
  model: string;
  stream: boolean;
  /** True if another candidate may continue the stream after a break. */
  resume: boolean;
}

/** The headers that a node needs to decrypt a request; empty if the request is not sealed. */
export function sealedHeaders(value: (name: string) => string | null | undefined): [string, string][] {
  return [SEAL_HEADER, SEAL_TO_HEADER, MODEL_HEADER, RESUME_HEADER].flatMap((name): [string, string][] => {
    const given = value(name) ?? undefined;
    return given === undefined ? [] : [[name, given]];
  });
}

/** The `info` input of HPKE (RFC 9180). */
export function requestInfo({ path, model, stream, resume, nonce, at, until }: Binding): Uint8Array<ArrayBuffer> {
  const flag = (on: boolean) => new Uint8Array([on ? 1 : 0]);
  const fields = [SUITE, utf8Bytes(path), utf8Bytes(model), flag(stream), flag(resume), nonce, u32(at), u32(until)];
  return concatBytes(LABEL_REQUEST, new Uint8Array([0]), ...fields.map(lengthPrefixed));
}

/** Formats the value of the `x-otela-seal` header. */
export function writeStamp({ nonce, at, until }: SealStamp): string {
  return `v=1; n=${toBase64url(nonce)}; at=${at}; until=${until}`;
}

const STAMP = /^v=1; n=([A-Za-z0-9_-]{22}); at=(\d{1,10}); until=(\d{1,10})$/;
const U32_MAX = 2 ** 32 - 1;

/** @throws SealError malformed */
export function readStamp(text: string): SealStamp {
  const [, nonceText = '', atText = '', untilText = ''] = STAMP.exec(text) ?? [];
  const nonce = fromBase64url(nonceText, NONCE_BYTES);
  const [at, until] = [Number(atText), Number(untilText)];
  if (nonce?.length !== NONCE_BYTES || at > U32_MAX || until > U32_MAX)
    throw new SealError('malformed', 'x-otela-seal does not have the format of version 1');
  return { nonce, at, until };
}

/**
 * The reason why a request with this stamp must not be answered at `now` (seconds since 1970); undefined if there is
 * none.
 */
export function timingProblem({ at, until }: SealStamp, now: number): string | undefined {
  if (at - now > CLOCK_AHEAD_MAX_S) return `it was sealed ${Math.round(at - now)} s ahead of the receiver's clock`;
  if (until <= now) return `it expired ${Math.round(now - until)} s ago by the receiver's clock`;
  return until > at && until - at <= SEALED_LIFE_MAX_S
    ? undefined
    : `it must be valid for at most ${SEALED_LIFE_MAX_S} s`;
}

/** The content key for one node: `kid 8 ‖ enc 32 ‖ Seal(CEK 32 ‖ SHA-256 of the sealed body 32)`. */
interface Envelope {
  kid: Uint8Array;
  enc: Uint8Array;
  sealed: Uint8Array;
}

const SEALED_BYTES = CEK_BYTES + SHA256_BYTES + TAG_BYTES;
const ENVELOPE_BYTES = KID_BYTES + ENC_BYTES + SEALED_BYTES;
const ENVELOPE_CHARS = (ENVELOPE_BYTES / 3) * 4;
/** Maximum number of nodes to which one request may be sealed. */
export const ENVELOPES_MAX = 16;

export function writeEnvelope({ kid, enc, sealed }: Envelope): string {
  return toBase64url(concatBytes(kid, enc, sealed));
}

/** @throws SealError malformed */
export function readEnvelope(text: string): Envelope {
  const bytes = fromBase64url(text, ENVELOPE_BYTES);
  if (bytes?.length !== ENVELOPE_BYTES)
    throw new SealError('malformed', `an envelope must have ${ENVELOPE_BYTES} bytes in base64url`);
  const [toEnc, toSealed] = [KID_BYTES, KID_BYTES + ENC_BYTES];
  return { kid: bytes.subarray(0, toEnc), enc: bytes.subarray(toEnc, toSealed), sealed: bytes.subarray(toSealed) };
}

/** Parses the value of `x-otela-seal-to`. The result's keys are `kid` in base64url. @throws SealError malformed */
export function readEnvelopes(text: string): Map<string, string> {
  const listed = text.split(',').map((one) => one.trim());
  if (listed.length > ENVELOPES_MAX) throw new SealError('malformed', `sealed to more than ${ENVELOPES_MAX} nodes`);
  const found = new Map<string, string>();
  for (const one of listed) {
    if (one.length !== ENVELOPE_CHARS)
      throw new SealError('malformed', `an envelope must have ${ENVELOPE_CHARS} characters`);
    found.set(toBase64url(readEnvelope(one).kid), one);
  }
  return found;
}
