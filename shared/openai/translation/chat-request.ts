/** What both translations write into a chat request. */
import { type Members, type RawValue, untranslatable, writeArray, writeObject } from './raw-value.ts';

/** A member of a JSON object. Its value is JSON already. */
export type RawMember = readonly [name: string, raw: string | undefined];

/**
 * Members of a chat request that a client's body may not bring along. The translation writes most of them, a second
 * choice would be lost, and `max_completion_tokens` would replace the limit that the gateway has checked.
 */
const RESERVED: ReadonlySet<string> = new Set([
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'stop',
  'n',
  'best_of',
  'tools',
  'tool_choice',
  'functions',
  'function_call',
  'parallel_tool_calls',
  'response_format',
  'reasoning_effort',
  'stream_options',
  'logprobs',
  'top_logprobs',
]);

/**
 * The chat request: what the translation wrote, then the members that it does not know, as they were written.
 * @throws ApiError if a member that it does not know would replace one that it wrote
 */
export function chatRequest(members: readonly RawMember[], rest: ReadonlyMap<string, RawValue>): string {
  const written = new Set(members.map(([name]) => name));
  for (const [name, value] of rest) {
    // Go's parsers read a key in any case.
    const folded = name.toUpperCase().toLowerCase();
    if (RESERVED.has(folded) || written.has(folded)) throw untranslatable(value.path);
  }
  return writeObject([...members, ...[...rest].map(([name, value]): RawMember => [name, value.raw])]);
}

export const quote = (text: string): string => JSON.stringify(text);

export function chatMessage(role: string, content: string | undefined, more: readonly RawMember[] = []): string {
  return writeObject([['role', quote(role)], ['content', content], ...more]);
}

/** A chat message's content: text without pictures as a string, because not every engine's template takes parts. */
export function chatContent(parts: readonly ChatPart[]): string {
  if (parts.every((part) => 'text' in part)) return quote(parts.map((part) => part.text).join('\n'));
  return writeArray(
    parts.map((part) =>
      'text' in part
        ? writeObject([
            ['type', '"text"'],
            ['text', quote(part.text)],
          ])
        : writeObject([
            ['type', '"image_url"'],
            [
              'image_url',
              writeObject([
                ['url', quote(part.image)],
                ['detail', part.detail],
              ]),
            ],
          ]),
    ),
  );
}

export type ChatPart = { text: string } | { image: string; detail?: string | undefined };

/** One call of a tool. `input`: JSON as the model or the client wrote it. */
export function chatToolCall(id: string, name: string, input: string): string {
  const called = writeObject([
    ['name', quote(name)],
    ['arguments', quote(input)],
  ]);
  return writeObject([
    ['id', quote(id)],
    ['type', '"function"'],
    ['function', called],
  ]);
}

export function chatTool(name: RawValue, members: Members, schema: string): string {
  const described = writeObject([
    ['name', name.raw],
    ['description', members.take('description')?.raw],
    ['parameters', members.take(schema)?.raw],
    ['strict', members.take('strict')?.raw],
  ]);
  return writeObject([
    ['type', '"function"'],
    ['function', described],
  ]);
}

/** A `response_format` from a format that names its schema. @throws ApiError */
export function chatResponseFormat(format: RawValue): string | undefined {
  const members = format.members();
  const kind = members.need('type').text();
  if (kind === 'text') return undefined;
  if (kind === 'json_object') return '{"type":"json_object"}';
  if (kind !== 'json_schema') throw untranslatable(format.path, ` of the type '${kind}'`);
  const schema = writeObject([
    ['name', members.take('name')?.raw ?? '"answer"'],
    ['description', members.take('description')?.raw],
    ['schema', members.need('schema').raw],
    ['strict', members.take('strict')?.raw],
  ]);
  members.end();
  return writeObject([
    ['type', '"json_schema"'],
    ['json_schema', schema],
  ]);
}

export const STREAM_OPTIONS: RawMember = ['stream_options', '{"include_usage":true}'];
