/** A session id certifies its own key, issuer, birth and end: only the holder of its private key can speak for it. */
import { base32, fromBase32 } from './base32.ts';
import type { ByteReader } from './bytes.ts';
import { LatticeError } from './error.ts';
import { SESSION_PATTERN } from './node.ts';

const SESSION_CHARS = 26;
/** 130 bits and six zero ones. */
export const SESSION_BYTES = 17;

/** The first 130 bits of a SHA-256 in lower-case base32 (RFC 4648 §6). */
export function sessionIdFromDigest(digest: Uint8Array): string {
  return base32(digest, SESSION_CHARS);
}

/** A session id as it stands in records. @throws LatticeError malformed */
export function packSession(session: string): Uint8Array {
  const bytes = SESSION_PATTERN.test(session) ? fromBase32(session) : undefined;
  if (bytes === undefined) throw new LatticeError('malformed', 'no session id');
  return bytes;
}

export function readSession(input: ByteReader): string {
  const bytes = input.bytes(SESSION_BYTES);
  if (((bytes[SESSION_BYTES - 1] ?? 0) & 0x3f) !== 0) throw new LatticeError('malformed', 'no session id');
  return base32(bytes, SESSION_CHARS);
}

const encoder = new TextEncoder();

/**
 * What an agent signs to prove its session on one socket. The nonce is the gateway's, so that no signature serves twice; the
 * audience is the host that the agent dialled, so that no gateway can pass a signature on to another and take the session's place.
 */
export function helloMessage(session: string, generation: number, nonce: Uint8Array, audience: string): Uint8Array {
  const label = encoder.encode(`otela-hello-2\n${session}\n${generation}\n${audience}\n`);
  const message = new Uint8Array(label.length + nonce.length);
  message.set(label);
  message.set(nonce, label.length);
  return message;
}

/** What an agent signs to leave its engine's last words with a gateway. `digest` is their SHA-256; a signature is good for them alone. */
export function logTailMessage(session: string, digest: Uint8Array): Uint8Array {
  const label = encoder.encode(`otela-logs-1\n${session}\n`);
  const message = new Uint8Array(label.length + digest.length);
  message.set(label);
  message.set(digest, label.length);
  return message;
}
