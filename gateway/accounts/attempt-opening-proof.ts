/**
 * The proof that this gateway opened an attempt. The gateway sends it to the node, in front of the receipt. The node
 * returns it with a report if the gateway may have forgotten the attempt. Without the proof, a node could charge a key
 * for requests that were never made.
 *
 *     1.EXPIRES.ENDPOINT.STREAMED.PROMPT.COMPLETION.MAC \n RECEIPT        numbers in base 36
 *
 * MAC: HMAC-SHA-256 (RFC 2104), cut to 128 bits, over all of these fields and the session, request id and attempt. Its
 * key is derived from the installation's secret, and like the secret it never leaves the gateway.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import type { ProvenOpening } from '../../shared/usage/usage-record.ts';
import type { ReportName } from '../../shared/wire/frames.ts';
import { sha256Hex } from './secrets.ts';

/**
 * How long a proof is valid after the opening. An agent repeats its reports after a disconnection. A report that
 * arrives later than this is not counted.
 */
export const OPENING_LIFE_MS = 24 * 60 * 60_000;

const VERSION = '1';
const RADIX = 36;
const MAC_BYTES = 16;
/** Characters of 16 bytes in base64url. */
const MAC_CHARS = 22;
const encoder = new TextEncoder();

/** An opened attempt, and its session. */
interface AttemptOpening extends Omit<ProvenOpening, 'openedAt' | 'expiresAt'> {
  session: string;
  requestId: string;
  attempt: number;
}

/** Returns the proof, which is sent in front of the receipt. */
export function signOpeningProof(secret: string, opening: AttemptOpening, now: number): string {
  const { endpoint, streamed, bound } = opening;
  const facts = [now + OPENING_LIFE_MS, endpoint, streamed ? 1 : 0, bound.prompt, bound.completion];
  const statement = [VERSION, ...facts.map((fact) => fact.toString(RADIX))].join('.');
  return `${statement}.${macOf(secret, statement, opening)}`;
}

/** Returns the opening that a report of this session proves. Undefined if its proof is missing, forged or expired. */
export function verifyOpeningProof(
  secret: string,
  session: string,
  { requestId, attempt, receipt: sent }: ReportName,
  now: number,
): ProvenOpening | undefined {
  const end = sent.indexOf('\n');
  const proof = sent.slice(0, Math.max(0, end));
  const receipt = sent.slice(end + 1);
  const statement = proof.slice(0, -MAC_CHARS - 1);
  const [version, ...facts] = statement.split('.');
  if (version !== VERSION || proof.at(-MAC_CHARS - 1) !== '.') return undefined;
  const mac = macOf(secret, statement, { session, requestId, attempt, receipt });
  if (!timingSafeEqual(encoder.encode(mac), macBytes(proof.slice(-MAC_CHARS)))) return undefined;
  const [expiresAt = 0, endpoint = 0, streamed = 0, prompt = 0, completion = 0] = facts.map((fact) =>
    Number.parseInt(fact, RADIX),
  );
  if (expiresAt <= now) return undefined;
  const openedAt = expiresAt - OPENING_LIFE_MS;
  return { receipt, endpoint, streamed: streamed === 1, openedAt, expiresAt, bound: { prompt, completion } };
}

/**
 * Returns exactly as many bytes as a MAC has, because timingSafeEqual throws if lengths differ, and a character of a
 * forged MAC may have several bytes.
 */
function macBytes(text: string): Uint8Array {
  const bytes = encoder.encode(text);
  return bytes.length === MAC_CHARS ? bytes : new Uint8Array(MAC_CHARS);
}

type Named = Pick<AttemptOpening, 'session' | 'requestId' | 'attempt' | 'receipt'>;

function macOf(secret: string, statement: string, { session, requestId, attempt, receipt }: Named): string {
  const { inner, outer } = padsOf(secret);
  const digest = hash('sha256', inner + JSON.stringify([statement, session, requestId, attempt, receipt]), 'binary');
  for (let n = 0; n < DIGEST_BYTES; n++) outer[BLOCK_BYTES + n] = digest.charCodeAt(n);
  return base64url(hash('sha256', outer, 'binary').slice(0, MAC_BYTES));
}

function base64url(latin1: string): string {
  return btoa(latin1).replaceAll('+', '-').replaceAll('/', '_').slice(0, MAC_CHARS);
}

/** The padded keys of RFC 2104's HMAC. The inner digest is written to the end of `outer`. */
interface Pads {
  secret: string;
  inner: string;
  outer: Uint8Array;
}

const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;
const INNER_PAD = 0x36;
const OUTER_PAD = 0x5c;

/** Cached pads. An isolate serves one installation, so one entry is enough. */
let pads: Pads | undefined;

/**
 * Returns the pads of a secret. The key is a digest in hex, exactly one block of SHA-256. The MAC is computed by two
 * one-shot hashes, because each request needs one MAC, and node:crypto's Hmac takes four times as long.
 */
function padsOf(secret: string): Pads {
  if (pads?.secret === secret) return pads;
  const key = encoder.encode(sha256Hex(`otela-opening-1\n${secret}`));
  const outer = new Uint8Array(BLOCK_BYTES + DIGEST_BYTES);
  outer.set(key.map((byte) => byte ^ OUTER_PAD));
  pads = { secret, inner: String.fromCharCode(...key.map((byte) => byte ^ INNER_PAD)), outer };
  return pads;
}
