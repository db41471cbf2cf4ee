/** The signed statement of a session's owner. The payload travels next to it, and is identified by its hash. */
import { ByteReader, ByteWriter, hex } from './byte-codec.ts';
import { type Crypto, SIGNATURE_BYTES, type Signer } from './crypto-interface.ts';
import { LatticeError } from './lattice-error.ts';
import { SESSION_STATES, type SessionState, sessionStateRank } from './node-record.ts';
import { packSession, readSession, SESSION_BYTES } from './session-id.ts';

export interface SignedRecord {
  readonly bytes: Uint8Array;
  readonly session: string;
  readonly state: SessionState;
  /** Grows with each change that the owner makes within one state. */
  readonly version: number;
  /** `payloadHash` of the payload's bytes, in hex. */
  readonly payloadHash: string;
  /**
   * SHA-256 of `bytes` in hex. Of two records with the same state and version, all replicas keep the one with the
   * higher hash.
   */
  readonly hash: string;
}

/**
 * Length of a payload's hash: 128 bits. A collision costs 2^64 hashes, and affects only the record of the provider that
 * found it.
 */
const PAYLOAD_HASH_BYTES = 16;
export const REGISTRY_RECORD_MAX_BYTES = SESSION_BYTES + 1 + 8 + PAYLOAD_HASH_BYTES + SIGNATURE_BYTES;

interface RecordFields {
  session: string;
  state: SessionState;
  version: number;
  /** The result of `encodePayload`. Other nodes do not need it if the state is LEFT. */
  payload: Uint8Array;
}

export function signRecord(fields: RecordFields, owner: Signer, crypto: Pick<Crypto, 'sha256'>): Uint8Array {
  const body = new ByteWriter()
    .bytes(packSession(fields.session))
    .byte(sessionStateRank(fields.state))
    .varint(fields.version)
    .bytes(rawPayloadHash(fields.payload, crypto))
    .done();
  return new ByteWriter()
    .bytes(body)
    .bytes(owner.sign(message(body)))
    .done();
}

/** @throws LatticeError truncated, malformed, too_large */
export function decodeRecord(bytes: Uint8Array, crypto: Pick<Crypto, 'sha256'>): SignedRecord {
  if (bytes.length > REGISTRY_RECORD_MAX_BYTES) throw new LatticeError('too_large', `record of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const session = readSession(input);
  const state = SESSION_STATES[input.byte()];
  if (state === undefined) throw new LatticeError('malformed', 'unknown state');
  const version = input.varint();
  const payloadHash = hex(input.bytes(PAYLOAD_HASH_BYTES));
  input.bytes(SIGNATURE_BYTES);
  input.end();
  return { bytes, session, state, version, payloadHash, hash: hex(crypto.sha256(bytes)) };
}

/** @throws LatticeError bad_signature */
export function verifyRecord(record: SignedRecord, sessionKey: Uint8Array, crypto: Crypto): SignedRecord {
  const at = record.bytes.length - SIGNATURE_BYTES;
  if (!crypto.verify(sessionKey, message(record.bytes.subarray(0, at)), record.bytes.subarray(at))) {
    throw new LatticeError('bad_signature', 'the record is not signed by its session');
  }
  return record;
}

export function payloadHash(payload: Uint8Array, crypto: Pick<Crypto, 'sha256'>): string {
  return hex(rawPayloadHash(payload, crypto));
}

function rawPayloadHash(payload: Uint8Array, crypto: Pick<Crypto, 'sha256'>): Uint8Array {
  return crypto.sha256(payload).subarray(0, PAYLOAD_HASH_BYTES);
}

function message(body: Uint8Array): Uint8Array {
  return new ByteWriter().label('record').bytes(body).done();
}
