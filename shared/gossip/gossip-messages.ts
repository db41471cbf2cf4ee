/**
 * The messages between peers. A message is a sequence of parts, each with a type and fields. Every count and length is
 * bounded, every part has exactly one encoding, and decoding allocates no more than the message's size.
 */
import { ByteReader, ByteWriter } from '../lattice/byte-codec.ts';
import { SIGNATURE_BYTES } from '../lattice/crypto-interface.ts';
import { LatticeError } from '../lattice/lattice-error.ts';
import { decodeUpdate, encodeUpdate, UPDATE_MAX_BYTES, type Update } from '../lattice/registry-update.ts';
import {
  BUCKETS,
  DIGEST_ITEMS_MAX,
  type Digest,
  decodeDigest,
  decodeIds,
  encodeDigest,
  encodeIds,
  ITEM_ID_BYTES,
} from '../lattice/replica-digest.ts';
import { packSession, readSession } from '../lattice/session-id.ts';
import type { PathVerdict, Refutation, Suspicion } from './gossip-events.ts';

/** Maximum size of one message. A larger one ends the channel. */
export const GOSSIP_MESSAGE_MAX_BYTES = 64 * 1024;
/** Maximum number of issuers per message. No operator lists as many. */
const ISSUERS_MAX = 64;
const ISSUER_CHARS = 26;
/** Maximum number of parts per message. The shortest part has 2 bytes. No honest message has as many parts. */
const PARTS_MAX = 4096;
export const SUMS_BYTES = BUCKETS * 2 * 4;
const DIGEST_MAX_BYTES = 64 + DIGEST_ITEMS_MAX * 40;

/**
 * The low 32 bits of the sums of one issuer's buckets, in this order: live sessions of the first bucket, LEFT sessions
 * of the first bucket, live sessions of the second bucket, … The root has all 64 bits.
 */
export interface IssuerSums {
  issuer: string;
  sums: Uint8Array;
}

export type MessagePart =
  /** `root`: 8 bytes, equal if two replicas are equal. `livenessHash` is equal if two liveness tables are equal. */
  | { type: 'ping'; seq: number; root: Uint8Array; livenessHash: number }
  /** `paceMs`: how long a gateway wants the peer to wait until its next ping; 0 between agents. */
  | { type: 'ack'; seq: number; root: Uint8Array; livenessHash: number; paceMs: number }
  /** Asks the receiver to ping `target` and to report the result. */
  | { type: 'probe'; seq: number; target: string }
  | { type: 'probed'; seq: number; verdict: PathVerdict }
  /** A new update. Each peer that did not know it passes it on. */
  | { type: 'news'; update: Update }
  /** The sender's state of a few entries. If the receiver knows an older state of one, it replies with `wants`. */
  | { type: 'have'; digest: Digest }
  | { type: 'suspicion'; suspicion: Suspicion }
  | { type: 'refutation'; refutation: Refutation }
  | { type: 'sums'; issuers: IssuerSums[] }
  /**
   * The sender's state of one scope. The receiver replies with the entries that the sender lacks, and requests newer
   * ones with `wants`. After the last digest of a message it replies with `done`.
   */
  | { type: 'digest'; digest: Digest }
  /**
   * An update that the receiver lacks. The receiver does not pass it on, because other peers compare for themselves.
   */
  | { type: 'repair'; update: Update }
  | { type: 'wants'; issuer: string; ids: string[] }
  /**
   * End of the reply to one message's digests. `more`: the reply was cut, so the receiver should send its digests
   * again.
   */
  | { type: 'done'; more: boolean }
  /** Requests the ticket or payload of a session that an update named without them. */
  | { type: 'pull'; session: string }
  /**
   * To a gateway. True: send updates to this member as well as to delegates, because its cluster may be split or it has
   * no neighbor. False: this is no longer needed.
   */
  | { type: 'apart'; apart: boolean };

const TYPES = [
  'ping',
  'ack',
  'probe',
  'probed',
  'news',
  'have',
  'suspicion',
  'refutation',
  'sums',
  'digest',
  'repair',
  'wants',
  'done',
  'pull',
  'apart',
] as const satisfies readonly MessagePart['type'][];
const VERDICTS = ['alive', 'silent', 'unknown'] as const satisfies readonly PathVerdict[];
const SEQ_MAX = 0xffff_ffff;
export const INCARNATION_MAX = 0xffff_ffff;

/** Encodes a part. The result is sent to several peers, so that a large update is encoded only once. */
export function encodeMessagePart(part: MessagePart): Uint8Array {
  const out = new ByteWriter().byte(TYPES.indexOf(part.type));
  writePart(out, part);
  return out.done();
}

function writePart(out: ByteWriter, part: MessagePart): void {
  switch (part.type) {
    case 'ping':
      out.varint(part.seq).bytes(part.root).u32(part.livenessHash);
      return;
    case 'ack':
      out.varint(part.seq).bytes(part.root).u32(part.livenessHash).varint(part.paceMs);
      return;
    case 'probe':
      out.varint(part.seq).bytes(packSession(part.target));
      return;
    case 'probed':
      out.varint(part.seq).byte(VERDICTS.indexOf(part.verdict));
      return;
    case 'news':
    case 'repair':
      out.blob(encodeUpdate(part.update));
      return;
    case 'suspicion':
      return writeSuspicion(out, part.suspicion);
    case 'refutation':
      out
        .bytes(packSession(part.refutation.session))
        .varint(part.refutation.incarnation)
        .bytes(part.refutation.signature);
      return;
    case 'sums':
      out.varint(part.issuers.length);
      for (const { issuer, sums } of part.issuers) out.text(issuer).bytes(sums);
      return;
    case 'have':
    case 'digest':
      out.blob(encodeDigest(part.digest));
      return;
    case 'wants':
      out.text(part.issuer).blob(encodeIds(part.ids));
      return;
    case 'done':
      out.byte(part.more ? 1 : 0);
      return;
    case 'pull':
      out.bytes(packSession(part.session));
      return;
    case 'apart':
      out.byte(part.apart ? 1 : 0);
  }
}

function writeSuspicion(out: ByteWriter, suspicion: Suspicion): void {
  const { target, incarnation, observer, signature, proof } = suspicion;
  out.bytes(packSession(target)).varint(incarnation).bytes(packSession(observer)).bytes(signature);
  if (incarnation > 0) out.bytes(proof ?? new Uint8Array(SIGNATURE_BYTES));
}

/** @throws LatticeError `truncated`, `malformed`, `too_large` at the first error, before any part is handled */
export function decodeMessage(bytes: Uint8Array): MessagePart[] {
  if (bytes.length > GOSSIP_MESSAGE_MAX_BYTES) throw new LatticeError('too_large', `message of ${bytes.length} bytes`);
  const input = new ByteReader(bytes);
  const parts: MessagePart[] = [];
  while (input.rest > 0) {
    if (parts.length >= PARTS_MAX) throw new LatticeError('too_large', `more than ${PARTS_MAX} parts`);
    const type = TYPES[input.byte()];
    if (type === undefined) throw new LatticeError('malformed', 'unknown part');
    parts.push(readPart(input, type));
  }
  return parts;
}

function readPart(input: ByteReader, type: MessagePart['type']): MessagePart {
  switch (type) {
    case 'ping':
      return { type, ...readPulse(input) };
    case 'ack':
      return { type, ...readPulse(input), paceMs: bounded(input.varint(), SEQ_MAX) };
    case 'probe':
      return { type, seq: bounded(input.varint(), SEQ_MAX), target: readSession(input) };
    case 'probed': {
      const seq = bounded(input.varint(), SEQ_MAX);
      const verdict = VERDICTS[input.byte()];
      if (verdict === undefined) throw new LatticeError('malformed', 'unknown verdict');
      return { type, seq, verdict };
    }
    case 'news':
    case 'repair':
      return { type, update: decodeUpdate(input.blob(UPDATE_MAX_BYTES)) };
    case 'suspicion':
      return { type, suspicion: readSuspicion(input) };
    case 'refutation':
      return { type, refutation: readRefutation(input) };
    case 'sums':
      return { type, issuers: readSums(input) };
    case 'have':
    case 'digest':
      return { type, digest: decodeDigest(input.blob(DIGEST_MAX_BYTES)) };
    case 'wants':
      return {
        type,
        issuer: input.text(ISSUER_CHARS),
        ids: decodeIds(input.blob(8 + DIGEST_ITEMS_MAX * ITEM_ID_BYTES)),
      };
    case 'done':
      return { type, more: readFlag(input) };
    case 'pull':
      return { type, session: readSession(input) };
    case 'apart':
      return { type, apart: readFlag(input) };
  }
}

function readPulse(input: ByteReader) {
  return {
    seq: bounded(input.varint(), SEQ_MAX),
    root: input.bytes(8),
    livenessHash: input.u32(),
  };
}

function readSuspicion(input: ByteReader): Suspicion {
  const target = readSession(input);
  const incarnation = bounded(input.varint(), INCARNATION_MAX);
  const observer = readSession(input);
  const signature = input.bytes(SIGNATURE_BYTES).slice();
  const proof = incarnation > 0 ? input.bytes(SIGNATURE_BYTES).slice() : undefined;
  return { target, incarnation, observer, signature, proof };
}

function readRefutation(input: ByteReader): Refutation {
  const session = readSession(input);
  const incarnation = bounded(input.varint(), INCARNATION_MAX);
  if (incarnation === 0) throw new LatticeError('malformed', 'an accusation must not have incarnation -1');
  return { session, incarnation, signature: input.bytes(SIGNATURE_BYTES).slice() };
}

function readSums(input: ByteReader): IssuerSums[] {
  const count = input.varint();
  if (count > ISSUERS_MAX) throw new LatticeError('too_large', `${count} issuers`);
  const issuers: IssuerSums[] = [];
  for (let i = 0; i < count; i++) issuers.push({ issuer: input.text(ISSUER_CHARS), sums: input.bytes(SUMS_BYTES) });
  return issuers;
}

function readFlag(input: ByteReader): boolean {
  const value = input.byte();
  if (value > 1) throw new LatticeError('malformed', 'a boolean must be 0 or 1');
  return value === 1;
}

function bounded(value: number, max: number): number {
  if (value > max) throw new LatticeError('too_large', `number above ${max}`);
  return value;
}

export function suspicionMessage(target: string, incarnation: number, observer: string): Uint8Array {
  return new ByteWriter()
    .label('suspicion')
    .bytes(packSession(target))
    .varint(incarnation)
    .bytes(packSession(observer))
    .done();
}

export function refutationMessage(session: string, incarnation: number): Uint8Array {
  return new ByteWriter().label('refutation').bytes(packSession(session)).varint(incarnation).done();
}
