/**
 * The plaintext of a sealed request or answer: `varint length ‖ JSON`, then the body's bytes. The JSON of a request is
 * its headers; that of an answer is its status and headers.
 */

import { isRecord } from './is-record.ts';
import { concatBytes, utf8Bytes, utf8Text } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';
import { readVarint, varint } from './varint.ts';

export type Headers = readonly (readonly [name: string, value: string])[];

export interface AnswerHead {
  status: number;
  headers: Headers;
  /** The point of an earlier part from which this part continues the answer. Absent if the answer begins here. */
  continues?: ContinuationPoint | undefined;
}

/** The point of an answer from which a node continues it. The chunk numbers prove that no earlier chunk is missing. */
export interface ContinuationPoint {
  /** Response nonce of the part that broke off, in base64url. */
  segment: string;
  /** Number of chunks in that part. */
  chunks: number;
}

/**
 * Engine headers that are sealed into an answer. A client takes no other header from the answer. `location` is not
 * listed, because SDKs follow it, and a provider could make them send their key to any address.
 */
export const ANSWER_HEADERS: ReadonlySet<string> = new Set(['content-type', 'content-encoding', 'content-disposition']);

/** Maximum length of the JSON in bytes. */
const HEAD_MAX_BYTES = 8 * 1024;
const HEADERS_MAX = 32;

export function prependHead(head: Headers | AnswerHead, body: Uint8Array): Uint8Array<ArrayBuffer> {
  const json = utf8Bytes(JSON.stringify(head));
  if (json.length > HEAD_MAX_BYTES) throw new SealError('too_large', `headers of ${json.length} bytes`);
  return concatBytes(varint(json.length), json, body);
}

function splitHead(content: Uint8Array): { head: unknown; body: Uint8Array } {
  const length = readVarint(content, 0);
  if (length === undefined || length.value > HEAD_MAX_BYTES || length.end + length.value > content.length)
    throw new SealError('malformed', 'the headers are missing, cut off or too long');
  const end = length.end + length.value;
  try {
    return { head: JSON.parse(utf8Text(content.subarray(length.end, end))), body: content.subarray(end) };
  } catch (cause) {
    throw new SealError('malformed', 'the headers are not JSON', { cause });
  }
}

/** @throws SealError malformed */
export function readRequestContent(content: Uint8Array): { headers: Headers; body: Uint8Array } {
  const { head, body } = splitHead(content);
  return { headers: headersOf(head), body };
}

/** Reads the plaintext of an answer's first chunk. @throws SealError malformed */
export function readAnswerContent(content: Uint8Array): AnswerHead & { body: Uint8Array } {
  const { head, body } = splitHead(content);
  if (typeof head !== 'object' || head === null || !('status' in head) || !('headers' in head))
    throw new SealError('malformed', 'the answer has no status or no headers');
  const { status } = head;
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 200 || status > 599)
    throw new SealError('malformed', 'the status of the answer must be a number from 200 to 599');
  const continues = 'continues' in head ? { continues: continuedOf(head.continues) } : {};
  return { status, headers: headersOf(head.headers), ...continues, body };
}

function continuedOf(value: unknown): ContinuationPoint {
  const { segment, chunks } = isRecord(value) ? value : {};
  if (typeof segment !== 'string' || typeof chunks !== 'number')
    throw new SealError('malformed', 'the continuation point is missing');
  return { segment, chunks };
}

/** Header names are in lower case (RFC 9110 §5.1); values contain no line breaks. */
const NAME = /^[a-z0-9-]{1,64}$/;
const VALUE = /^[\t\x20-\x7e]{0,4096}$/;

function headersOf(head: unknown): Headers {
  if (!Array.isArray(head) || head.length > HEADERS_MAX) throw new SealError('malformed', 'the headers are not a list');
  return head.map((pair: unknown) => {
    const [name, value] = Array.isArray(pair) ? pair : [];
    if (typeof name !== 'string' || typeof value !== 'string' || !NAME.test(name) || !VALUE.test(value))
      throw new SealError('malformed', 'a header is not a valid pair of name and value');
    return [name, value] as const;
  });
}
