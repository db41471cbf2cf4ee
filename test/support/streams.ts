/** A reader of event streams that shares no code with the product. */

interface Heard {
  text: string;
  ids: Set<unknown>;
  roles: number;
  dones: number;
  finishes: unknown[];
  usages: Record<string, unknown>[];
  errors: unknown[];
  chunks: number;
  /** Number of events with text. */
  textChunks: number;
  comments: string[];
  /** True if the last event lacks its blank line. */
  cut: boolean;
}

/**
 * Events as a client reads them: an event ends with a blank line, and an incomplete one is dropped, as the
 * specification requires.
 */
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
    textChunks: 0,
    comments: [],
    cut: false,
  };
  const lines = answer.split(/\r\n|\n|\r/);
  let data: string[] = [];
  for (const line of lines.slice(0, -1)) {
    if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
    if (line.startsWith(':')) heard.comments.push(line.slice(1).trim());
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
  const text = choice.delta?.content ?? choice.text ?? '';
  heard.text += text;
  if (text !== '') heard.textChunks++;
  if (choice.finish_reason) heard.finishes.push(choice.finish_reason);
}
