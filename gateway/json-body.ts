/** JSON bodies and query strings of all but model requests: small, and of exactly the expected shape. */
import type { z } from 'zod';
import { ApiError } from '../shared/openai/errors.ts';

const BODY_MAX_BYTES = 64 * 1024;

/** Parses a request's body. Throws ApiError 413 above 64 KiB, 400 where it is no JSON or not what `schema` says. */
export async function readBody<T>(request: Request, schema: z.ZodType<T>): Promise<T> {
  const text = await readText(request);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new ApiError('invalid_json', 'The body is not valid JSON.', { cause });
  }
  return parse(json, schema);
}

/** The query string as an object; a name that is given twice counts once, the last time. */
export function readQuery<T>(request: Request, schema: z.ZodType<T>): T {
  return parse(Object.fromEntries(new URL(request.url).searchParams), schema);
}

export function parse<T>(value: unknown, schema: z.ZodType<T>): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const param = issue?.path.join('.') ?? '';
  const said = issue === undefined ? 'Not what is expected here.' : saidOf(issue);
  if (param === '') throw new ApiError('invalid_request', said);
  throw new ApiError('invalid_request', `${param}: ${said}`, { param });
}

/** A pattern without words of its own: the expression is for programmers. */
function saidOf(issue: z.core.$ZodIssue): string {
  const raw =
    issue.code === 'invalid_format' && issue.format === 'regex' && issue.message.includes('must match pattern');
  return raw ? 'has a form that is not allowed here; /openapi.json has it.' : issue.message;
}

/** Counts what really arrives: content-length may be absent, or wrong. */
async function readText(request: Request): Promise<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });
  let text = '';
  let bytes = 0;
  try {
    for await (const chunk of request.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > BODY_MAX_BYTES) break;
      text += decoder.decode(chunk, { stream: true });
    }
    text += bytes > BODY_MAX_BYTES ? '' : decoder.decode();
  } catch (cause) {
    throw new ApiError('invalid_json', 'The body is not UTF-8 text.', { cause });
  }
  if (bytes <= BODY_MAX_BYTES) return text;
  throw new ApiError('request_too_large', `This body may have ${BODY_MAX_BYTES} bytes at most.`);
}
