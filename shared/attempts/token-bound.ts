/**
 * Upper bound of one attempt's token usage, calculated from values that the caller knows. If a node reports more, its
 * report is reduced to the bound.
 */
import type { Endpoint } from '../openai/endpoints.ts';
import { AUDIO_MAX_MS, IMAGES_MAX } from '../openai/media-usage.ts';
import type { Sampling } from '../openai/sampling-parameters.ts';
import type { ReportedUsage } from '../wire/reported-usage.ts';

/** Maximum numbers of tokens that one attempt may report. */
export interface TokenBound {
  prompt: number;
  completion: number;
}

/**
 * Tokens that an engine may count although the caller sees none of their bytes. In prompts: the chat template, tools,
 * images by URL. In answers: reasoning that the engine does not send.
 */
export const UNSEEN_TOKENS_MAX = 32_768;

/** Assumed context length in tokens if the node publishes none. */
const CONTEXT_UNKNOWN = 1_048_576;

/** Bound of the prompt's tokens if the body's length is unknown: four times CONTEXT_UNKNOWN. */
const PROMPT_UNKNOWN = 4 * CONTEXT_UNKNOWN;

/**
 * Bound of the tokens of one choice, for any model. Needed because the context length comes from the node itself, and
 * because after a restart of the caller this is the only limit of the node's report.
 */
const ANSWER_MAX = 1_048_576;

/** Tokens that are added to the bound of an answer, because some engines count the tokens that end it. */
const STOP_TOKENS_MAX = 16;

/** Endpoints for which one request is one prompt. The others accept a list of prompts. */
const SINGLE_PROMPT: ReadonlySet<string> = new Set([
  '/v1/chat/completions',
  '/v1/responses',
  '/v1/responses/{id}',
  '/v1/messages',
]);

/** Bytes of the shortest prompt in a list: two quotation marks, a letter and a comma. */
const LISTED_PROMPT_BYTES = 4;
const PROMPTS_MAX = 1_024;
const CHOICES_MAX = 1_024;

/** Milliseconds of audio that a byte can hold: 1 kbit/s, a sixth of the lowest rate of Opus. */
const AUDIO_MS_PER_BYTE = 8;
/** Bytes of the shortest image in a response, which is a URL in an object. */
const IMAGE_BYTES = 8;

export interface BoundedRequest {
  body: { kind: 'kept'; bytes: Uint8Array } | { kind: 'opaque'; length: number | undefined };
  sampling?: Sampling;
  endpoint: { path: string };
}

/** Calculates the bound. `contextLength`: of the model at that node, in tokens. */
export function tokenBound(
  { body, sampling, endpoint }: BoundedRequest,
  contextLength: number | undefined,
): TokenBound {
  const bytes = body.kind === 'kept' ? body.bytes.length : body.length;
  const single = SINGLE_PROMPT.has(endpoint.path);
  const context = contextLength ?? CONTEXT_UNKNOWN;
  // Each token takes at least one byte of the body.
  const sent = bytes === undefined ? PROMPT_UNKNOWN : bytes + UNSEEN_TOKENS_MAX;
  const prompts = single ? 1 : within((bytes ?? PROMPTS_MAX) / LISTED_PROMPT_BYTES, PROMPTS_MAX);
  const perChoice = Math.min(context, ANSWER_MAX, atLeastOne(sampling?.max_tokens) ?? context) + STOP_TOKENS_MAX;
  return {
    prompt: single ? Math.min(sent, context) : sent,
    completion: perChoice * within(sampling?.n ?? 1, CHOICES_MAX) * prompts,
  };
}

/**
 * Maximum number of tokens that a request allows for its answer, all choices together; undefined if the request has no
 * limit. Both factors are bounded. Otherwise `1e308` twice is Infinity, and Infinity minus Infinity is NaN, which
 * exceeds no limit.
 */
export function responseTokenBound(maxTokens: number | undefined, choices = 1): number | undefined {
  if (maxTokens === undefined || maxTokens < 0) return undefined;
  return Math.min(maxTokens, ANSWER_MAX) * within(choices, CHOICES_MAX);
}

function atLeastOne(tokens: number | undefined): number | undefined {
  return tokens !== undefined && tokens >= 1 ? Math.floor(tokens) : undefined;
}

function within(count: number, max: number): number {
  return Math.max(1, Math.min(max, Math.floor(count)));
}

/**
 * Reduces the report to the bound. `over`: true if the report exceeded the bound. `answerBytes`: received bytes of the
 * answer, if they were counted. `media`: of the attempt's endpoint.
 */
export function clampToBound(
  usage: ReportedUsage,
  bound: TokenBound,
  answerBytes: number | undefined,
  media: Endpoint['media'],
): { usage: ReportedUsage; over: boolean } {
  const seen = answerBytes === undefined ? bound.completion : answerBytes + UNSEEN_TOKENS_MAX;
  const prompt = Math.min(usage.prompt, bound.prompt);
  const completion = Math.min(usage.completion, bound.completion, seen);
  const cached = Math.min(usage.cached, prompt);
  const reasoning = Math.min(usage.reasoning, completion);
  const counted = clampMedia(usage, bound, answerBytes, media);
  const over = prompt < usage.prompt || completion < usage.completion || counted.over;
  const { audioMs: _audioMs, images: _images, ...tokens } = usage;
  return { usage: { ...tokens, ...counted.usage, prompt, completion, cached, reasoning }, over };
}

/**
 * Audio is in the request or in the response. The bytes of the request bound the prompt's tokens. Images are in the
 * response. Media of other endpoints are dropped: otherwise a node could charge images for a chat.
 */
function clampMedia(
  { audioMs, images }: ReportedUsage,
  bound: TokenBound,
  answerBytes = Number.POSITIVE_INFINITY,
  media: Endpoint['media'],
): { usage: Pick<ReportedUsage, 'audioMs' | 'images'>; over: boolean } {
  const usage: Pick<ReportedUsage, 'audioMs' | 'images'> = {};
  if (audioMs !== undefined && (media === 'uploaded_audio' || media === 'speech'))
    usage.audioMs = Math.min(audioMs, AUDIO_MAX_MS, Math.max(bound.prompt, answerBytes) * AUDIO_MS_PER_BYTE);
  if (images !== undefined && media === 'images')
    usage.images = Math.min(images, IMAGES_MAX, Math.ceil(answerBytes / IMAGE_BYTES));
  const over = (usage.audioMs ?? 0) < (audioMs ?? 0) || (usage.images ?? 0) < (images ?? 0);
  return { usage, over };
}
