/** Translates a request of Anthropic's /v1/messages to one of /v1/chat/completions. */
import { ApiError } from '../api-errors.ts';
import {
  type ChatPart,
  chatContent,
  chatMessage,
  chatRequest,
  chatResponseFormat,
  chatTool,
  chatToolCall,
  quote,
  type RawMember,
  STREAM_OPTIONS,
} from './chat-request.ts';
import { type Members, type RawValue, untranslatable, writeArray, writeObject } from './raw-value.ts';

/** Members that change neither the answer nor its form: a hint for caches, the user's name, the price class. */
const WITHOUT_EFFECT = ['cache_control', 'metadata', 'service_tier'] as const;
/** Members that only Anthropic's servers can follow. An engine would ignore them. */
const REFUSED = ['container', 'mcp_servers', 'context_management', 'prompt'] as const;

/** @throws ApiError 400 if a part has no counterpart */
export function messagesToChat(body: RawValue): { body: string; without: string } {
  const top = body.members();
  for (const name of REFUSED) if (top.take(name) !== undefined) throw untranslatable(name);
  top.drop(...WITHOUT_EFFECT);
  // The engine decides how long it thinks. Its thoughts arrive as `thinking` blocks.
  top.take('thinking');
  const system = top.take('system');
  const messages = system === undefined ? [] : [chatMessage('system', quote(textOf(system)))];
  const turns = top.need('messages').items();
  for (const turn of turns) messages.push(...messagesOf(turn));
  if (turns.at(-1)?.members().need('role').text() === 'assistant')
    throw untranslatable(`messages[${turns.length - 1}]`, ', a beginning of the answer,');
  const members: RawMember[] = [
    ['messages', writeArray(messages)],
    ['max_tokens', top.need('max_tokens').raw],
    ['stop', top.take('stop_sequences')?.raw],
    ['tools', toolsOf(top.take('tools'))],
    ...toolChoice(top.take('tool_choice')),
    ...outputConfig(top.take('output_config')),
  ];
  const streams = top.rest.get('stream')?.isTrue === true;
  const without = chatRequest(members, top.rest);
  return { body: streams ? chatRequest([...members, STREAM_OPTIONS], top.rest) : without, without };
}

/** The chat messages of one turn. Each result of a tool becomes its own message, before the rest of the turn. */
function messagesOf(turn: RawValue): string[] {
  const members = turn.members();
  const role = members.need('role').text();
  const content = members.need('content');
  members.end();
  if (role !== 'user' && role !== 'assistant')
    throw new ApiError('invalid_value', `'${turn.path}.role' must be user or assistant.`, {
      param: `${turn.path}.role`,
    });
  if (content.isString) return [chatMessage(role, content.raw)];
  return role === 'user' ? userMessages(content.items()) : [assistantMessage(content.items())];
}

function userMessages(blocks: readonly RawValue[]): string[] {
  const results: string[] = [];
  const parts: ChatPart[] = [];
  for (const block of blocks) {
    const members = block.members();
    members.drop('cache_control');
    const type = members.need('type').text();
    if (type === 'tool_result') {
      const { result, images } = toolResult(members);
      results.push(result);
      parts.push(...images);
    } else parts.push(partOf(type, block, members));
  }
  return parts.length === 0 ? results : [...results, chatMessage('user', chatContent(parts))];
}

/** A chat message of a tool has text only, so pictures go into the user's message after it. */
function toolResult(members: Members): { result: string; images: ChatPart[] } {
  const id = members.need('tool_use_id').raw;
  const content = members.take('content');
  // The text says what failed; a chat message has no place for the flag.
  members.take('is_error');
  members.end();
  const parts =
    content === undefined ? [] : content.isString ? [{ text: content.text() }] : content.items().map(readPart);
  const texts = parts.filter((part) => 'text' in part);
  const images = parts.filter((part) => 'image' in part);
  return { result: chatMessage('tool', chatContent(texts), [['tool_call_id', id]]), images };
}

function assistantMessage(blocks: readonly RawValue[]): string {
  const texts: ChatPart[] = [];
  const calls: string[] = [];
  for (const block of blocks) {
    const members = block.members();
    members.drop('cache_control');
    const type = members.need('type').text();
    // Engines' templates leave out the thoughts of earlier turns.
    if (type === 'thinking' || type === 'redacted_thinking') continue;
    if (type === 'tool_use') {
      const [id, name, input] = [members.need('id').text(), members.need('name').text(), members.need('input').raw];
      members.end();
      calls.push(chatToolCall(id, name, input));
    } else if (type === 'text') texts.push(partOf(type, block, members));
    else throw untranslatable(block.path, ` of the type '${type}'`);
  }
  const more: RawMember[] = calls.length === 0 ? [] : [['tool_calls', writeArray(calls)]];
  return chatMessage('assistant', texts.length === 0 && calls.length > 0 ? 'null' : chatContent(texts), more);
}

function readPart(block: RawValue): ChatPart {
  const members = block.members();
  members.drop('cache_control');
  return partOf(members.need('type').text(), block, members);
}

function partOf(type: string, block: RawValue, members: Members): ChatPart {
  if (type === 'text') {
    const text = members.need('text').text();
    members.drop('citations');
    members.end();
    return { text };
  }
  if (type !== 'image') throw untranslatable(block.path, ` of the type '${type}'`);
  const source = members.need('source');
  members.end();
  const given = source.members();
  const kind = given.need('type').text();
  if (kind !== 'base64' && kind !== 'url') throw untranslatable(source.path, ` of the type '${kind}'`);
  const image =
    kind === 'url'
      ? given.need('url').text()
      : `data:${given.need('media_type').text()};base64,${given.need('data').text()}`;
  given.end();
  return { image };
}

/** The text of a string, or of blocks of text. */
function textOf(value: RawValue): string {
  if (value.isString) return value.text();
  const parts = value.items().map((block) => {
    const part = readPart(block);
    if (!('text' in part)) throw untranslatable(block.path);
    return part.text;
  });
  return parts.join('\n');
}

function toolsOf(tools: RawValue | undefined): string | undefined {
  const items = tools?.items() ?? [];
  if (items.length === 0) return undefined;
  return writeArray(
    items.map((tool) => {
      const members = tool.members();
      members.drop('cache_control');
      const type = members.take('type')?.text() ?? 'custom';
      if (type !== 'custom') throw untranslatable(tool.path, ` of the type '${type}'`);
      const written = chatTool(members.need('name'), members, 'input_schema');
      members.end();
      return written;
    }),
  );
}

const CHOICES: ReadonlyMap<string, string> = new Map([
  ['auto', '"auto"'],
  ['any', '"required"'],
  ['none', '"none"'],
]);

function toolChoice(choice: RawValue | undefined): RawMember[] {
  if (choice === undefined) return [];
  const members = choice.members();
  const type = members.need('type').text();
  const alone = members.take('disable_parallel_tool_use')?.isTrue === true;
  const named =
    type === 'tool'
      ? writeObject([
          ['type', '"function"'],
          ['function', writeObject([['name', members.need('name').raw]])],
        ])
      : undefined;
  members.end();
  const written = named ?? CHOICES.get(type);
  if (written === undefined) throw untranslatable(choice.path, ` of the type '${type}'`);
  return [
    ['tool_choice', written],
    ['parallel_tool_calls', alone ? 'false' : undefined],
  ];
}

function outputConfig(config: RawValue | undefined): RawMember[] {
  if (config === undefined) return [];
  const members = config.members();
  const [effort, format] = [members.take('effort'), members.take('format')];
  members.end();
  return [
    ['reasoning_effort', effort?.raw],
    ['response_format', format && chatResponseFormat(format)],
  ];
}
