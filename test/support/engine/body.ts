/** Reads a request's body: a digest of all of it, its beginning, and the whole of it only if it is JSON. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { EngineRequest } from './record.ts';

/** Largest JSON body that is parsed. */
const JSON_LIMIT_BYTES = 256 * 1024 * 1024;
const START_BYTES = 64 * 1024;

interface ReadBody {
  /** The parsed body; undefined if it is not valid JSON. */
  json: Record<string, unknown> | undefined;
  /** The first bytes, latin1: enough for the text fields at the beginning of a multipart body. */
  start: string;
}

export async function readBody(message: IncomingMessage, request: EngineRequest): Promise<ReadBody> {
  const isJson = !/multipart|octet-stream|audio/.test(message.headers['content-type'] ?? '');
  const hash = createHash('sha256');
  const kept: Buffer[] = [];
  let start = Buffer.alloc(0);
  for await (const piece of message) {
    const bytes: Buffer = Buffer.isBuffer(piece) ? piece : Buffer.from(String(piece));
    hash.update(bytes);
    request.bodyBytes += bytes.length;
    if (start.length < START_BYTES) start = Buffer.concat([start, bytes.subarray(0, START_BYTES - start.length)]);
    if (isJson && request.bodyBytes <= JSON_LIMIT_BYTES) kept.push(bytes);
  }
  request.bodySha256 = hash.digest('hex');
  request.bodyStart = start.toString('utf8');
  return { json: isJson ? parse(Buffer.concat(kept)) : undefined, start: start.toString('latin1') };
}

/** Skips a byte order mark, as Python's `json.loads` does in real engines. */
function parse(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
