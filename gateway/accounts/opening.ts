/**
 * The proof that this gateway opened an attempt. It travels to the node in front of the receipt and comes back with a report whose
 * opening the gateway no longer remembers. Without it a node could charge a key for requests that were never made.
 *
 *     1.EXPIRES.ENDPOINT.STREAMED.PROMPT.COMPLETION.MAC \n RECEIPT        numbers in base 36
 *
 * MAC: HMAC-SHA-256 (RFC 2104), cut to 128 bits, over all of these and the session, request id and attempt that it is for. Its key is
 * derived from the installation's secret and leaves the gateway as little as that does.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { ProvenOpening } from '../../shared/usage/usage-record.ts';
import type { ReportName } from '../../shared/wire/frames.ts';
import { sha256Hex } from './secrets.ts';

/** An agent that was away says its reports again. One that is away for longer than a day is not counted any more. */
export const OPENING_LIFE_MS = 24 * 60 * 60_000;

const VERSION = '1';
const RADIX = 36;
const MAC_BYTES = 16;
/** Of 16 bytes in base64url. */
const MAC_CHARS = 22;
const encoder = new TextEncoder();

/** What is opened where. */
export interface Opening extends Omit<ProvenOpening, 'openedAt' | 'expiresAt'> {
  session: string;
  requestId: string;
  attempt: number;
}

/** The proof, to be sent in front of the receipt. */
export function proveOpening(secret: string, opening: Opening, now: number): string {
  const { endpoint, streamed, bound } = opening;
  const facts = [now + OPENING_LIFE_MS, endpoint, streamed ? 1 : 0, bound.prompt, bound.completion];
  const said = [VERSION, ...facts.map((fact) => fact.toString(RADIX))].join('.');
  return `${said}.${macOf(secret, said, opening)}`;
}

/** The opening that a named report of this session proves; undefined where it proves none, or none that has not expired. */
export function provenOpening(
  secret: string,
  session: string,
  { requestId, attempt, receipt: sent }: ReportName,
  now: number,
): ProvenOpening | undefined {
  const end = sent.indexOf('\n');
  const proof = sent.slice(0, Math.max(0, end));
  const receipt = sent.slice(end + 1);
  const said = proof.slice(0, -MAC_CHARS - 1);
  const [version, ...facts] = said.split('.');
  if (version !== VERSION || proof.at(-MAC_CHARS - 1) !== '.') return undefined;
  const mac = macOf(secret, said, { session, requestId, attempt, receipt });
  if (!timingSafeEqual(encoder.encode(mac), macBytes(proof.slice(-MAC_CHARS)))) return undefined;
  const [expiresAt = 0, endpoint = 0, streamed = 0, prompt = 0, completion = 0] = facts.map((fact) =>
    Number.parseInt(fact, RADIX),
  );
  if (expiresAt <= now) return undefined;
  const openedAt = expiresAt - OPENING_LIFE_MS;
  return { receipt, endpoint, streamed: streamed === 1, openedAt, expiresAt, bound: { prompt, completion } };
}

/** Always as long as a MAC: timingSafeEqual throws for lengths that differ, and a character may have more bytes than one. */
function macBytes(text: string): Uint8Array {
  const bytes = encoder.encode(text);
  return bytes.length === MAC_CHARS ? bytes : new Uint8Array(MAC_CHARS);
}

type Named = Pick<Opening, 'session' | 'requestId' | 'attempt' | 'receipt'>;

function macOf(secret: string, said: string, { session, requestId, attempt, receipt }: Named): string {
  const text = JSON.stringify([said, session, requestId, attempt, receipt]);
  const hmac = createHmac('sha256', keyOf(secret)).update(text).digest();
  return base64url(hmac.subarray(0, MAC_BYTES));
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .slice(0, MAC_CHARS);
}

/** An isolate serves one installation, so the last key is the only one. */
let derived: { secret: string; key: string } | undefined;

function keyOf(secret: string): string {
  if (derived?.secret !== secret) derived = { secret, key: sha256Hex(`otela-opening-1\n${secret}`) };
  return derived.key;
}
