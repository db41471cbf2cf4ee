import { readAudioUrl } from './audio-line.ts';
import { FUNCTIONS_ENDPOINT } from './function-context.ts';

const AUDIO_TRANSCRIPTIONS = '/v1/audio/transcriptions';
const AUDIO_TRANSLATIONS = '/v1/audio/translations';
/** Endpoints that lines of a batch may use. */
export const BATCH_ENDPOINTS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/embeddings',
  '/v1/responses',
  '/v1/rerank',
  '/v1/score',
  '/v1/classify',
  '/v1/pooling',
  '/v1/moderations',
  AUDIO_TRANSCRIPTIONS,
  AUDIO_TRANSLATIONS,
  FUNCTIONS_ENDPOINT,
] as const;
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number];

/** One entry of a batch's `errors.data`. `line` is null if the error concerns the whole file. */
export interface BatchError {
  code: string;
  message: string;
  param: string | null;
  line: number | null;
}

/**
 * Maximum length of a `custom_id`, in UTF-16 units. OpenAI states no limit; 50,000 of them are in memory while a file
 * is checked.
 */
const CUSTOM_ID_MAX = 256;

/** Maximum length of a restriction, the same as for ordinary requests (shared/openai/metadata-member.ts). */
const RESTRICTION_MAX = 4_096;

const REQUIRED = ['custom_id', 'method', 'url', 'body'] as const;
/**
 * What the body of each endpoint needs in addition to the model. Of a list of names, one is needed: vLLM and SGLang
 * name the members of a score differently.
 */
const CONTENT: Record<BatchEndpoint, readonly (readonly string[])[]> = {
  '/v1/chat/completions': [['messages']],
  '/v1/completions': [['prompt']],
  '/v1/embeddings': [['input']],
  '/v1/responses': [['input']],
  '/v1/rerank': [['query'], ['documents']],
  '/v1/score': [
    ['text_1', 'data_1', 'queries', 'query'],
    ['text_2', 'data_2', 'documents', 'items'],
  ],
  '/v1/classify': [['input', 'messages']],
  '/v1/pooling': [['input', 'messages']],
  '/v1/moderations': [['input']],
  [AUDIO_TRANSCRIPTIONS]: [['file_url']],
  [AUDIO_TRANSLATIONS]: [['file_url']],
  [FUNCTIONS_ENDPOINT]: [['input']],
};

/** The result of a line is JSON, so that no other form of a transcript fits. */
const JSON_FORMATS: ReadonlySet<unknown> = new Set(['json', 'verbose_json', 'diarized_json']);

export type Json = Record<string, unknown>;

export function isJsonObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @returns the line's fields, or all of its errors (at least one) */
export function checkLine(value: unknown, endpoint: BatchEndpoint, line: number): Json | BatchError[] {
  if (!isJsonObject(value)) return [notJson(line)];
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
  if (!isJsonObject(body)) {
    add('invalid_request', "'body' must be an object.", 'body');
    return errors;
  }
  // Also refuses `"true"` and `1`, because engines accept them as true.
  if (body.stream !== undefined && body.stream !== null && body.stream !== false)
    add('streaming_unsupported', 'A line of a batch cannot stream.', 'body.stream');
  for (const name of misread(body))
    add(
      'invalid_request',
      `'${name}' could be read differently or ignored: write 'model' in lower case, and otela_ members as strings of at most 4 KiB.`,
      name,
    );
  if (typeof body.model !== 'string' || body.model === '') {
    add('invalid_request', "'body.model' must name a model.", 'body.model');
  }
  for (const names of CONTENT[endpoint]) {
    if (names.some((name) => body[name] !== undefined && body[name] !== null)) continue;
    add('invalid_request', `'body.${names.join("' or 'body.")}' is missing.`, `body.${names[0]}`);
  }
  const fault = endpoint === AUDIO_TRANSCRIPTIONS || endpoint === AUDIO_TRANSLATIONS ? audioFault(body) : undefined;
  if (fault !== undefined) add('invalid_request', fault.message, `body.${fault.name}`);
  return errors.length > 0 ? errors : value;
}

/** Why a line with audio is refused. A node follows no address of a line, because it may reach what the owner may not. */
function audioFault({ file_url: url, response_format: format }: Json): { message: string; name: string } | undefined {
  if (typeof url === 'string' && readAudioUrl(url) === undefined)
    return { message: "'file_url' must be 'data:audio/…;base64,' with the audio.", name: 'file_url' };
  if (url !== undefined && url !== null && typeof url !== 'string')
    return { message: "'file_url' must be a string.", name: 'file_url' };
  if (format === undefined || format === null || JSON_FORMATS.has(format)) return undefined;
  return { message: "'response_format' must be 'json', 'verbose_json' or 'diarized_json'.", name: 'response_format' };
}

/**
 * Members of a line that engines may read differently than the gateway. Go's encoding/json reads `Model` as `model`,
 * which could replace the checked value. A list of providers that cannot be parsed must not be ignored.
 */
function misread(body: Json): string[] {
  const models = Object.keys(body).filter((key) => key !== 'model' && key.toLowerCase() === 'model');
  const metadata = isJsonObject(body.metadata) ? Object.entries(body.metadata) : [];
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

/** Number of inputs of an embeddings line. A string, or a list of tokens, is one input. */
export function inputsOfLine(body: Json, endpoint: BatchEndpoint): number {
  const { input } = body;
  if (endpoint !== '/v1/embeddings' || !Array.isArray(input)) return 1;
  return typeof input[0] === 'number' ? 1 : Math.max(1, input.length);
}
