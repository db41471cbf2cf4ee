/** Parses JSON bodies, forms and query strings of all requests except those to models. */
import type { z } from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { type BodyContext, readBodyBytes } from './read-body.ts';

const BODY_MAX_BYTES = 64 * 1024;

/**
 * Parses a request's JSON body.
 * @throws ApiError 413 above 64 KiB, 400 if the body is not JSON or does not match `schema`, 408 if it stalls
 */
export async function readParsedBody<T>(c: BodyContext, schema: z.ZodType<T>): Promise<T> {
  return parseWithSchema(await readJsonBody(c, BODY_MAX_BYTES), schema);
}

/**
 * Parses a form, as OAuth clients send it.
 * @throws ApiError 413 above 64 KiB, 400 if the form does not match `schema`, 408 if it stalls
 */
export async function readFormFields<T>(c: BodyContext, schema: z.ZodType<T>): Promise<T> {
  return parseWithSchema(Object.fromEntries(new URLSearchParams(await readText(c, BODY_MAX_BYTES))), schema);
}

/**
 * Parses a JSON body that the caller validates.
 * @throws ApiError 413 above `maxBytes`, 400 if the body is not JSON, 408 if it stalls
 */
export async function readJsonBody(c: BodyContext, maxBytes: number): Promise<unknown> {
  const text = await readText(c, maxBytes);
  try {
    return parseJson(text);
  } catch (cause) {
    throw new ApiError('invalid_json', 'The body is not valid JSON.', { cause });
  }
}

/** Parses the query string. If a name is repeated, its last value counts. */
export function readQuery<T>(request: Request, schema: z.ZodType<T>): T {
  return parseWithSchema(Object.fromEntries(new URL(request.url).searchParams), schema);
}

export function parseWithSchema<T>(value: unknown, schema: z.ZodType<T>): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const param = issue?.path.join('.') ?? '';
  const message = issue === undefined ? 'The request is not valid.' : describeIssue(issue);
  if (param === '') throw new ApiError('invalid_request', message);
  throw new ApiError('invalid_request', `${param}: ${message}`, { param });
}

/**
 * Returns the message of a validation error. A pattern without a message gets a general one, because users do not read
 * regular expressions.
 */
function describeIssue(issue: z.core.$ZodIssue): string {
  const raw =
    issue.code === 'invalid_format' && issue.format === 'regex' && issue.message.includes('must match pattern');
  return raw ? 'does not match the pattern in /openapi.json.' : issue.message;
}

async function readText(c: BodyContext, maxBytes: number): Promise<string> {
  const bytes = await readBodyBytes(c, maxBytes);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch (cause) {
    throw new ApiError('invalid_json', 'The body is not UTF-8 text.', { cause });
  }
}
