/**
 * Session ids. An id is a hash that certifies the session's key, issuer, birth and end, so only the holder of the
 * private key can act as the session.
 */
import { base32, fromBase32 } from './base32.ts';
import type { ByteReader } from './byte-codec.ts';
import { LatticeError } from './lattice-error.ts';
import { SESSION_PATTERN } from './node-record.ts';

const SESSION_CHARS = 26;
/** Length of an encoded session id in bytes: 130 bits, followed by six zero bits. */
export const SESSION_BYTES = 17;

/** The first 130 bits of a SHA-256 in lower-case base32 (RFC 4648 §6). */
export function sessionIdFromDigest(digest: Uint8Array): string {
  return base32(digest, SESSION_CHARS);
}

/** The encoding of a session id in records. @throws LatticeError malformed */
export function packSession(session: string): Uint8Array {
  const bytes = SESSION_PATTERN.test(session) ? fromBase32(session) : undefined;
  if (bytes === undefined) throw new LatticeError('malformed', 'not a session id');
  return bytes;
}

export function readSession(input: ByteReader): string {
  const bytes = input.bytes(SESSION_BYTES);
  if (((bytes[SESSION_BYTES - 1] ?? 0) & 0x3f) !== 0) throw new LatticeError('malformed', 'not a session id');
  return base32(bytes, SESSION_CHARS);
}

const encoder = new TextEncoder();

/**
 * The message that an agent signs to prove its session on one socket. The nonce is the gateway's, so no signature is
 * valid twice. The audience is the host that the agent dialed, so no gateway can forward a signature to another and
 * take the session's place.
 */
export function helloMessage(session: string, generation: number, nonce: Uint8Array, audience: string): Uint8Array {
  const label = encoder.encode(`otela-hello-2\n${session}\n${generation}\n${audience}\n`);
  const message = new Uint8Array(label.length + nonce.length);
  message.set(label);
  message.set(nonce, label.length);
  return message;
}

/**
 * The message that an agent signs to upload the end of its log to a gateway. `digest` is the SHA-256 of that log part,
 * so the signature is valid for no other.
 */
export function logTailMessage(session: string, digest: Uint8Array): Uint8Array {
  const label = encoder.encode(`otela-logs-1\n${session}\n`);
  const message = new Uint8Array(label.length + digest.length);
  message.set(label);
  message.set(digest, label.length);
  return message;
}
