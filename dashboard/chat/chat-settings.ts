/** Settings of a conversation, as typed; empty: the engine's default. */
export interface ChatSettings {
  system: string;
  temperature: string;
  topP: string;
  maxTokens: string;
  /** One of `REASONING_EFFORTS`, or empty. Absent, as each optional member: the conversation is from an older page. */
  reasoningEffort?: string;
  seed?: string;
  /** One text per line; `\n` in it is a line break. */
  stop?: string;
  /** `JSON_OBJECT`, or empty. */
  form?: string;
  /** Provider ids, separated by commas. */
  trusted: string;
  /** `SEALED`, or empty. */
  sealed?: string;
}

export const SEALED = 'sealed';
export const JSON_OBJECT = 'json_object';
/** Values that engines and OpenAI have in common. */
export const REASONING_EFFORTS = ['none', 'low', 'medium', 'high'] as const;
/** OpenAI's limit, which engines follow. */
const STOP_MAX = 4;

export const NO_CHAT_SETTINGS: ChatSettings = { system: '', temperature: '', topP: '', maxTokens: '', trusted: '' };

export function isDefault(settings: ChatSettings): boolean {
  return Object.values(settings).every((value) => value.trim() === '');
}

/** Members of the request that the form sets; an empty or invalid field leaves the engine's default. */
export function chatSampling(settings: ChatSettings) {
  const number = (text = '') => (text.trim() === '' || Number.isNaN(Number(text)) ? undefined : Number(text));
  const [temperature, top_p, max_tokens] = [settings.temperature, settings.topP, settings.maxTokens].map(number);
  const seed = number(settings.seed);
  const effort = REASONING_EFFORTS.find((known) => known === settings.reasoningEffort);
  const stop = (settings.stop ?? '').split('\n').filter((line) => line !== '');
  return {
    ...(temperature !== undefined && { temperature }),
    ...(top_p !== undefined && { top_p }),
    ...(max_tokens !== undefined && { max_tokens }),
    ...(seed !== undefined && Number.isSafeInteger(seed) && { seed }),
    ...(effort !== undefined && { reasoning_effort: effort }),
    ...(stop.length > 0 && { stop: stop.slice(0, STOP_MAX).map((line) => line.replaceAll('\\n', '\n')) }),
    ...(settings.form === JSON_OBJECT && { response_format: { type: JSON_OBJECT } as const }),
  };
}

/** Names in shared links: never change them. */
const IN_LINK: Readonly<Record<keyof ChatSettings, string>> = {
  system: 'system',
  temperature: 'temperature',
  topP: 'top_p',
  maxTokens: 'max_tokens',
  reasoningEffort: 'reasoning_effort',
  seed: 'seed',
  stop: 'stop',
  form: 'form',
  trusted: 'trusted',
  sealed: 'seal',
};

/** Maximum length of a value in a link. Mail programs and proxies cut off longer links. */
const SYSTEM_MAX_CHARS = 8_000;

/** `model=…&system=…`: the settings in a shared link. */
export function linkQuery(models: readonly string[], settings: ChatSettings): string {
  const query = new URLSearchParams();
  for (const model of models) query.append('model', model);
  for (const [name, key] of entriesOf(IN_LINK)) {
    const value = (settings[name] ?? '').trim();
    if (value !== '') query.set(key, value.slice(0, SYSTEM_MAX_CHARS));
  }
  return query.toString();
}

export function settingsOfLink(query: URLSearchParams): { models: string[]; settings: ChatSettings } {
  const settings = { ...NO_CHAT_SETTINGS };
  for (const [name, key] of entriesOf(IN_LINK)) settings[name] = (query.get(key) ?? '').slice(0, SYSTEM_MAX_CHARS);
  return { models: query.getAll('model').slice(0, 2), settings };
}

function entriesOf<Key extends string, Value>(record: Readonly<Record<Key, Value>>): [Key, Value][] {
  return Object.entries(record) as [Key, Value][];
}
