/**
 * Reads the `model` and `stream` parts of a multipart/form-data body (RFC 7578). It is stricter than the RFC where
 * parsers differ. Otherwise the engine might read other values than the gateway, and an allow-list could be bypassed.
 */

import { ApiError } from './api-errors.ts';
import { ByteSearch, decodeUtf8, encodeUtf8, sameBytes, startsWith } from './byte-search.ts';
import { headerParameters, MAX_PART_HEADER_BYTES, multipartBoundary } from './multipart-headers.ts';

const MAX_PARTS = 100;
const MAX_MODEL_BYTES = 256;

const LF = 0x0a;
const CR = 0x0d;
const CRLF = encodeUtf8('\r\n');
const BLANK_LINE = encodeUtf8('\r\n\r\n');
const DASHES = encodeUtf8('--');

/** Words that form parsers of engines accept as true (pydantic's list). */
const TRUE_WORDS = new Set(['true', '1', 'on', 't', 'y', 'yes']);

interface MultipartScan {
  model?: string;
  stream: boolean;
}

function invalid(reason: string): ApiError {
  return new ApiError('invalid_multipart', `The multipart body is malformed: ${reason}.`);
}

function boundaryOf(contentType: string): string {
  const [type = ''] = contentType.split(';', 1);
  if (type.trim().toLowerCase() !== 'multipart/form-data') {
    throw new ApiError('unsupported_media_type', 'This endpoint requires a multipart/form-data body.');
  }
  const boundary = multipartBoundary(contentType);
  if (boundary === undefined) throw invalid('the content type has no valid boundary');
  return boundary;
}

/** Offset of the CRLF before the next delimiter. */
function partEnd(bytes: Uint8Array, dashBoundary: ByteSearch, from: number): number {
  for (let at = dashBoundary.indexIn(bytes, from); at >= 0; at = dashBoundary.indexIn(bytes, at + 1)) {
    const before = bytes[at - 1];
    // Some parsers consider such a delimiter the end of the part, and others do not. So the body is refused.
    const isDoubtful = at < from + CRLF.length || !startsWith(bytes, CRLF, at - CRLF.length);
    if (!isDoubtful) return at - CRLF.length;
    if (before === LF || before === CR) throw invalid('a boundary is not preceded by CRLF');
  }
  throw invalid('the closing boundary is missing');
}

function headerEnd(bytes: Uint8Array, from: number): number {
  const limit = Math.min(bytes.length, from + MAX_PART_HEADER_BYTES);
  for (let at = from; at < limit; at++) {
    if (bytes[at] === CR && startsWith(bytes, BLANK_LINE, at)) return at;
  }
  throw invalid(`the headers of a part do not end within ${MAX_PART_HEADER_BYTES} bytes`);
}

/** The part's name, from its headers. */
function partName(header: string): string {
  let disposition: string | undefined;
  let encoding = '8bit';
  for (const line of header.split('\r\n')) {
    const match = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)$/.exec(line);
    if (match === null) throw invalid('a part has a malformed header');
    const [, name = '', value = ''] = match;
    if (name.toLowerCase() === 'content-transfer-encoding') encoding = value.trim().toLowerCase();
    if (name.toLowerCase() !== 'content-disposition') continue;
    if (disposition !== undefined) throw invalid('a part has two content-disposition headers');
    disposition = value;
  }
  if (disposition === undefined || !/^form-data\s*(;|$)/i.test(disposition)) {
    throw invalid('a part has no form-data content-disposition');
  }
  const found = headerParameters(disposition);
  const name = found?.get('name');
  if (found === undefined || name === undefined) throw invalid('a part has no readable name');
  // Parsers differ in how they read escapes and RFC 2231 forms of a name.
  const isPlain = !name.includes('\\') && ![...found.keys()].some((key) => key.startsWith('name*'));
  if (!isPlain) throw invalid('the name of a part is escaped');
  if (!['7bit', '8bit', 'binary'].includes(encoding)) throw invalid('a part has a content-transfer-encoding');
  return name;
}

function modelOf(value: Uint8Array): string {
  if (value.length > 0 && value.length <= MAX_MODEL_BYTES) return decodeUtf8(value);
  const message = `'model' must be a non-empty string of at most ${MAX_MODEL_BYTES} bytes.`;
  throw new ApiError('invalid_request', message, { param: 'model' });
}

/**
 * Reads the part headers, and the values of these two parts. Other parts, such as a file, are only searched for the
 * boundary.
 * @throws ApiError 400 `invalid_multipart`, `duplicate_key` or `invalid_request`; 415 for another content type
 */
export function scanMultipart(bytes: Uint8Array, contentType: string): MultipartScan {
  const boundary = new ByteSearch(`--${boundaryOf(contentType)}`);
  const scan: MultipartScan = { stream: false };
  const seen = new Set<string>();
  if (!startsWith(bytes, boundary.bytes)) throw invalid('it does not begin with the boundary');
  let pos = boundary.bytes.length;
  for (let parts = 0; !startsWith(bytes, DASHES, pos); parts++) {
    if (parts >= MAX_PARTS) throw invalid(`it has more than ${MAX_PARTS} parts`);
    if (!startsWith(bytes, CRLF, pos)) throw invalid('a boundary is not followed by CRLF');
    const headers = pos + CRLF.length;
    const blank = headerEnd(bytes, headers);
    const begin = blank + BLANK_LINE.length;
    const end = partEnd(bytes, boundary, begin);
    readPart(scan, seen, partName(decodeUtf8(bytes.subarray(headers, blank))), bytes.subarray(begin, end));
    pos = end + CRLF.length + boundary.bytes.length;
  }
  const rest = bytes.subarray(pos + DASHES.length);
  if (rest.length > 0 && !sameBytes(rest, CRLF)) throw invalid('something follows the closing boundary');
  return scan;
}

function readPart(scan: MultipartScan, seen: Set<string>, name: string, value: Uint8Array): void {
  if (name !== 'model' && name !== 'stream') return;
  if (seen.has(name)) {
    throw new ApiError('duplicate_key', `The part '${name}' occurs more than once.`, { param: name });
  }
  seen.add(name);
  if (name === 'model') scan.model = modelOf(value);
  else scan.stream = value.length <= 8 && TRUE_WORDS.has(decodeUtf8(value).toLowerCase());
}
