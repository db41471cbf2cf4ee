/** Streams as engines write them, and a reader of them that has nothing in common with the code that is tested. */
import { bytes } from '../support.ts';

export type Kind = 'chat' | 'completions';

export interface Told {
  kind: Kind;
  id: string;
  model?: string;
  /** What the prompt had already. */
  after?: readonly string[];
  tokens: readonly string[];
  eol?: string;
  usage?: boolean;
  /** Comments between the events. */
  pings?: boolean;
  fingerprint?: string;
}

const PROMPT_TOKENS = 7;

/** The whole answer of an engine; one event each. */
export function events({ kind, id, model = 'm', after = [], tokens, usage = true, fingerprint }: Told): string[] {
  const object = kind === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  const head = { id, object, created: id.length, model, ...(fingerprint && { system_fingerprint: fingerprint }) };
  const said = (delta: object, text: string) => (kind === 'chat' ? { delta } : { text });
  const chunk = (delta: object, text: string, finish_reason: string | null) =>
    JSON.stringify({ ...head, choices: [{ index: 0, ...said(delta, text), logprobs: null, finish_reason }] });
  const out = kind === 'chat' ? [chunk({ role: 'assistant', content: '' }, '', null)] : [];
  for (const token of tokens) out.push(chunk({ content: token }, token, null));
  out.push(chunk({}, '', 'stop'));
  const prompt_tokens = PROMPT_TOKENS + after.length;
  const counts = { prompt_tokens, completion_tokens: tokens.length, total_tokens: prompt_tokens + tokens.length };
  if (usage) out.push(JSON.stringify({ ...head, choices: [], usage: counts }));
  return [...out, '[DONE]'];
}

export function stream(told: Told): Uint8Array {
  const { eol = '\n', pings = false } = told;
  const ping = pings ? `: ping${eol}${eol}` : '';
  return bytes(
    events(told)
      .map((data) => `${ping}data: ${data}${eol}${eol}`)
      .join(''),
  );
}

export interface Heard {
  text: string;
  ids: Set<unknown>;
  roles: number;
  dones: number;
  finishes: unknown[];
  usages: Record<string, unknown>[];
  errors: unknown[];
  chunks: number;
  /** The last event lacks its blank line. */
  cut: boolean;
}

/** What a client hears: events end with a blank line, the rest is dropped, as the specification wants it. */
export function hear(answer: string): Heard {
  const heard: Heard = {
    text: '',
    ids: new Set(),
    roles: 0,
    dones: 0,
    finishes: [],
    usages: [],
    errors: [],
    chunks: 0,
    cut: false,
  };
  const lines = answer.split(/\r\n|\n|\r/);
  let data: string[] = [];
  for (const line of lines.slice(0, -1)) {
    if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
    if (line !== '' || data.length === 0) continue;
    take(heard, data.join('\n'));
    data = [];
  }
  heard.cut = data.length > 0 || lines.at(-1) !== '';
  return heard;
}

function take(heard: Heard, data: string): void {
  if (data === '[DONE]') {
    heard.dones++;
    return;
  }
  const chunk = JSON.parse(data);
  if (chunk.error) return void heard.errors.push(chunk.error);
  heard.chunks++;
  heard.ids.add(chunk.id);
  if (chunk.usage) heard.usages.push(chunk.usage);
  const [choice] = chunk.choices;
  if (choice === undefined) return;
  if (choice.delta?.role) heard.roles++;
  heard.text += choice.delta?.content ?? choice.text ?? '';
  if (choice.finish_reason) heard.finishes.push(choice.finish_reason);
}
