/**
 * The issuer's statement that a session has left, signed by the gateway key that admitted the session. The ticket names
 * this key, so the statement does not repeat it.
 */
import { ByteReader, ByteWriter, hex } from './byte-codec.ts';
import { type Crypto, SIGNATURE_BYTES, type Signer } from './crypto-interface.ts';
import { LatticeError } from './lattice-error.ts';
import { ID_PATTERN } from './node-record.ts';
import { packSession, readSession, SESSION_BYTES } from './session-id.ts';

export interface Eviction {
  readonly bytes: Uint8Array;
  readonly session: string;
  /** A short id such as `silent` or `operator`. */
  readonly reason: string;
  /** SHA-256 of `bytes` in hex. Of two evictions of one session, all replicas keep the one with the higher hash. */
  readonly hash: string;
}

const REASON_MAX_BYTES = 63;
export const EVICTION_MAX_BYTES = SESSION_BYTES + 1 + REASON_MAX_BYTES + SIGNATURE_BYTES;

/**
 * @param gateway signs with the key that signed the session's ticket
 * @throws LatticeError malformed
 */
export function signEviction(
  fields: { session: string; reason: string },
  gateway: Signer,
  crypto: Pick<Crypto, 'sha256'>,
): Uint8Array {
  const body = new ByteWriter().bytes(packSession(fields.session)).text(fields.reason).done();
  const bytes = new ByteWriter()
    .bytes(body)
    .bytes(gateway.sign(message(body)))
    .done();
  decodeEviction(bytes, crypto);
  return bytes;
}

/** @throws LatticeError truncated, malformed, too_large */
export function decodeEviction(bytes: Uint8Array, crypto: Pick<Crypto, 'sha256'>): Eviction {
  if (bytes.length > EVICTION_MAX_BYTES) throw new LatticeError('too_large', `eviction of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const session = readSession(input);
  const reason = input.text(REASON_MAX_BYTES);
  if (!ID_PATTERN.test(reason)) throw new LatticeError('malformed', 'the reason is not an id');
  input.bytes(SIGNATURE_BYTES);
  input.end();
  return { bytes, session, reason, hash: hex(crypto.sha256(bytes)) };
}

/**
 * @param key the key of the ticket's certificate
 * @throws LatticeError bad_signature
 */
export function verifyEviction(eviction: Eviction, key: Uint8Array, crypto: Crypto): Eviction {
  const at = eviction.bytes.length - SIGNATURE_BYTES;
  if (!crypto.verify(key, message(eviction.bytes.subarray(0, at)), eviction.bytes.subarray(at))) {
    throw new LatticeError('bad_signature', 'the eviction is not signed by the key that admitted the session');
  }
  return eviction;
}

function message(body: Uint8Array): Uint8Array {
  return new ByteWriter().label('eviction').bytes(body).done();
}
