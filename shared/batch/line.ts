import { FUNCTIONS_ENDPOINT } from './function.ts';

/** Endpoints whose requests may be lines of a batch. */
export const BATCH_ENDPOINTS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/embeddings',
  '/v1/responses',
  FUNCTIONS_ENDPOINT,
] as const;
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number];

/** One entry of a batch's `errors.data`. `line` is null where the file as a whole is at fault. */
export interface BatchError {
  code: string;
  message: string;
  param: string | null;
  line: number | null;
}

/** Longest `custom_id`, in UTF-16 units. OpenAI states none; 50,000 of these are kept in memory while a file is checked. */
export const CUSTOM_ID_MAX = 256;

/** As of requests that are no lines (shared/openai/metadata.ts). */
const RESTRICTION_MAX = 4_096;

const REQUIRED = ['custom_id', 'method', 'url', 'body'] as const;
/** What each endpoint's body must have beside the model. */
const CONTENT: Record<BatchEndpoint, string> = {
  '/v1/chat/completions': 'messages',
  '/v1/completions': 'prompt',
  '/v1/embeddings': 'input',
  '/v1/responses': 'input',
  [FUNCTIONS_ENDPOINT]: 'input',
};

export type Json = Record<string, unknown>;

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @returns the line's fields, or every error that it has (at least one) */
export function checkLine(value: unknown, endpoint: BatchEndpoint, line: number): Json | BatchError[] {
  if (!isObject(value)) return [notJson(line)];
  const errors: BatchError[] = [];
  const add = (code: string, message: string, param: string | null) => errors.push({ code, message, param, line });
  for (const name of REQUIRED) {
    if (value[name] === undefined || value[name] === null || value[name] === '') {
      add('missing_required_parameter', `Missing required parameter: '${name}'.`, name);
    }
  }
  if (errors.length > 0) return errors;
  const { custom_id: id, method, url, body } = value;
  if (typeof id !== 'string' || id.length > CUSTOM_ID_MAX) {
    add('invalid_request', `'custom_id' must be a string of at most ${CUSTOM_ID_MAX} characters.`, 'custom_id');
  }
  if (method !== 'POST') add('invalid_method', "The method of a line must be 'POST'.", 'method');
  if (url !== endpoint)
    add('invalid_url', `The URL of this line does not match the batch's endpoint '${endpoint}'.`, 'url');
  if (!isObject(body)) {
    add('invalid_request', "'body' must be an object.", 'body');
    return errors;
  }
  // Engines take "true" and 1, too.
  if (body.stream !== undefined && body.stream !== null && body.stream !== false)
    add('streaming_unsupported', 'A line of a batch cannot stream.', 'body.stream');
  for (const name of misread(body))
    add('invalid_request', `'${name}' is read differently by engines, or not at all: correct it.`, name);
  if (typeof body.model !== 'string' || body.model === '') {
    add('invalid_request', "'body.model' must name a model.", 'body.model');
  }
  const content = CONTENT[endpoint];
  if (body[content] === undefined || body[content] === null) {
    add('invalid_request', `'body.${content}' is missing.`, `body.${content}`);
  }
  return errors.length > 0 ? errors : value;
}

/** Go's encoding/json takes `Model` for `model`, after what was checked. A list of providers that cannot be read must not be overlooked. */
function misread(body: Json): string[] {
  const models = Object.keys(body).filter((key) => key !== 'model' && key.toLowerCase() === 'model');
  const metadata = isObject(body.metadata) ? Object.entries(body.metadata) : [];
  const unread = metadata.filter(
    ([key, value]) =>
      key.startsWith('otela_') && value !== null && (typeof value !== 'string' || value.length > RESTRICTION_MAX),
  );
  return [
    ...models.map((key) => `body.${key}`),
    ...unread.map(([key]) => `body.metadata.${key}`.slice(0, CUSTOM_ID_MAX)),
  ];
}

export function notJson(line: number): BatchError {
  return { code: 'invalid_json_line', message: 'This line is not parseable as valid JSON.', param: null, line };
}

/** How many inputs an embeddings line has: a string or a list of tokens is one. */
export function inputsOf(body: Json, endpoint: BatchEndpoint): number {
  const { input } = body;
  if (endpoint !== '/v1/embeddings' || !Array.isArray(input)) return 1;
  return typeof input[0] === 'number' ? 1 : Math.max(1, input.length);
}
