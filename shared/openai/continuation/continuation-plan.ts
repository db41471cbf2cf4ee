/**
 * Decides which streams another engine can continue in the middle of a sentence. That engine sees the text so far as
 * part of its prompt. So only keys of a body are allowed that mean the same to it, and any other key excludes the
 * request.
 */
import type { Endpoint } from '../endpoints.ts';
import { isObject } from '../token-usage.ts';
import { parseJsonObject } from './parse-json-object.ts';

export type ContinuableKind = 'chat' | 'completions';

/** A request whose stream can be continued. */
export interface ContinuationPlan {
  kind: ContinuableKind;
  /** The request's body as it was sent. */
  body: Readonly<Record<string, unknown>>;
  /** True if the client asked for a usage event at the end of the stream. */
  wantsUsage: boolean;
  /** Maximum number of tokens of the whole response; undefined: as many as the model's context holds. */
  limit: number | undefined;
}

/** Why the stream cannot be continued, as a clause for the client. */
interface NoPlan {
  why: string;
}

const KINDS: ReadonlyMap<string, ContinuableKind> = new Map([
  ['/v1/chat/completions', 'chat'],
  ['/v1/completions', 'completions'],
]);

/** For `/v1/completions` without `max_tokens`: OpenAI's documented default, which vLLM and SGLang follow. */
const COMPLETIONS_DEFAULT_TOKENS = 16;

type Rule = (value: unknown) => boolean;

const anything: Rule = () => true;
const only =
  (...values: unknown[]): Rule =>
  (value) =>
    values.includes(value);
const empty: Rule = (value) => (Array.isArray(value) ? value.length === 0 : isObject(value) && isEmpty(value));
const tokens: Rule = (value) => Number.isSafeInteger(value) && Number(value) > 0;
const plainText: Rule = (value) => isObject(value) && value.type === 'text';
const textAlone: Rule = (value) => Array.isArray(value) && value.every((one) => one === 'text');
const usageAlone: Rule = (value) =>
  isObject(value) &&
  Object.entries(value).every(([key, one]) => one === null || USAGE_OPTIONS.get(key)?.(one) === true);

const USAGE_OPTIONS: ReadonlyMap<string, Rule> = new Map([
  ['include_usage', only(true, false)],
  ['include_obfuscation', only(false)],
  ['continuous_usage_stats', only(false)],
]);

/** Allowed keys, with the values that do not affect a continuation. A key with the value `null` counts as absent. */
const BOTH: readonly (readonly [string, Rule])[] = [
  ['model', anything],
  ['stream', only(true)],
  ['stream_options', usageAlone],
  ['max_tokens', tokens],
  ['temperature', anything],
  ['top_p', anything],
  ['top_k', anything],
  ['min_p', anything],
  ['ignore_eos', anything],
  ['user', anything],
  ['metadata', anything],
  ['priority', anything],
  ['prompt_cache_key', anything],
  ['cache_salt', anything],
  ['n', only(1)],
  ['best_of', only(1)],
  ['stop', empty],
  ['stop_token_ids', empty],
  ['logit_bias', empty],
  ['presence_penalty', only(0)],
  ['frequency_penalty', only(0)],
  ['repetition_penalty', only(1)],
  ['echo', only(false)],
  ['skip_special_tokens', only(true)],
];

const RULES: Readonly<Record<ContinuableKind, ReadonlyMap<string, Rule>>> = {
  chat: new Map([
    ...BOTH,
    ['messages', isConversation],
    ['max_completion_tokens', tokens],
    ['logprobs', only(false)],
    ['top_logprobs', only(0)],
    ['tools', empty],
    ['tool_choice', only('none')],
    ['parallel_tool_calls', anything],
    ['response_format', plainText],
    ['modalities', textAlone],
    ['add_generation_prompt', only(true)],
    ['continue_final_message', only(false)],
    ['store', anything],
    ['service_tier', anything],
    ['safety_identifier', anything],
    ['prompt_cache_retention', anything],
  ]),
  completions: new Map([...BOTH, ['prompt', (value) => typeof value === 'string']]),
};

const REQUIRED_MEMBER: Readonly<Record<ContinuableKind, string>> = { chat: 'messages', completions: 'prompt' };

/** True if no message has tool calls, because templates render them differently. */
function isConversation(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(isMessage);
}

function isMessage(value: unknown): boolean {
  if (!isObject(value) || value.role === 'tool' || value.role === 'function') return false;
  return [value.tool_calls, value.function_call].every((one) => one === undefined || one === null || empty(one));
}

/** @param bytes the request's whole body */
export function planContinuation(endpoint: Pick<Endpoint, 'path'>, bytes: Uint8Array): ContinuationPlan | NoPlan {
  const kind = KINDS.get(endpoint.path);
  if (kind === undefined) return { why: `streams of ${endpoint.path} cannot be continued` };
  const body = parseJsonObject(bytes);
  if (body === undefined) return { why: 'its body is not a JSON object' };
  const rules = RULES[kind];
  for (const [key, value] of Object.entries(body)) {
    if (value === null || rules.get(key)?.(value) === true) continue;
    const reason = rules.has(key) ? 'has a value that prevents it' : 'is not known to allow it';
    return { why: `'${key.slice(0, 64)}' ${reason}` };
  }
  if (body.stream !== true) return { why: 'it is not a stream' };
  if (body[REQUIRED_MEMBER[kind]] === undefined || body[REQUIRED_MEMBER[kind]] === null)
    return { why: `it has no '${REQUIRED_MEMBER[kind]}'` };
  const wantsUsage = isObject(body.stream_options) && body.stream_options.include_usage === true;
  return { kind, body, wantsUsage, limit: limitOf(kind, body) };
}

function limitOf(kind: ContinuableKind, body: Readonly<Record<string, unknown>>): number | undefined {
  const { max_tokens, max_completion_tokens } = body;
  const given = typeof max_completion_tokens === 'number' ? max_completion_tokens : max_tokens;
  if (typeof given === 'number') return given;
  return kind === 'completions' && given === undefined ? COMPLETIONS_DEFAULT_TOKENS : undefined;
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}
