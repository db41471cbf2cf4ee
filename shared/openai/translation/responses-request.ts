/** Translates a request of OpenAI's /v1/responses to one of /v1/chat/completions. */
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

/** Members that need a server that stores responses, runs tools, or cuts prompts. */
const REFUSED = ['previous_response_id', 'conversation', 'prompt', 'max_tool_calls', 'context_management'] as const;

/** Parts of the request that the response repeats. */
export interface EchoedMembers {
  readonly [name: string]: string | undefined;
}
const ECHOED = [
  'instructions',
  'max_output_tokens',
  'metadata',
  'parallel_tool_calls',
  'reasoning',
  'temperature',
  'text',
  'tool_choice',
  'tools',
  'top_p',
] as const;
/** A longer part is not repeated: a stream repeats it in three events. */
const ECHO_MAX_BYTES = 64 * 1024;

/** @throws ApiError 400 if a part has no counterpart */
export function responsesToChat(body: RawValue): { body: string; without: string; echoed: EchoedMembers } {
  const top = body.members();
  const echoed = Object.fromEntries(
    ECHOED.flatMap((name) => {
      const value = top.rest.get(name);
      return value === undefined || value.bytes.length > ECHO_MAX_BYTES ? [] : [[name, value.raw]];
    }),
  );
  for (const name of REFUSED) if (top.take(name) !== undefined) throw untranslatable(name);
  refuseTrue(top, 'store');
  refuseTrue(top, 'background');
  const truncation = top.take('truncation');
  if (truncation !== undefined && truncation.text() !== 'disabled') throw untranslatable('truncation');
  refuseIncluded(top.take('include'));
  const options = top.take('stream_options')?.members();
  options?.drop('include_obfuscation');
  options?.end();
  const instructions = top.take('instructions');
  const messages = [
    ...(instructions === undefined ? [] : [chatMessage('system', quote(instructions.text()))]),
    ...inputMessages(top.need('input')),
  ];
  const members: RawMember[] = [
    ['messages', writeArray(messages)],
    ['max_tokens', top.take('max_output_tokens')?.raw],
    ['tools', toolsOf(top.take('tools'))],
    ['tool_choice', toolChoice(top.take('tool_choice'))],
    ['parallel_tool_calls', top.take('parallel_tool_calls')?.raw],
    ...reasoning(top.take('reasoning')),
    ...textConfig(top.take('text')),
  ];
  const streams = top.rest.get('stream')?.isTrue === true;
  const without = chatRequest(members, top.rest);
  return { body: streams ? chatRequest([...members, STREAM_OPTIONS], top.rest) : without, without, echoed };
}

function refuseTrue(top: Members, name: string): void {
  if (top.take(name)?.isTrue === true) throw untranslatable(name);
}

/** Clients ask for encrypted reasoning so that they can send it back. Items of reasoning are left out here. */
function refuseIncluded(include: RawValue | undefined): void {
  for (const one of include?.items() ?? [])
    if (one.text() !== 'reasoning.encrypted_content') throw untranslatable(one.path);
}

/** Items of the input that the assistant produced, until another item follows. */
class AssistantTurn {
  readonly parts: ChatPart[] = [];
  readonly calls: string[] = [];

  get message(): string[] {
    if (this.parts.length + this.calls.length === 0) return [];
    const content = this.parts.length === 0 ? 'null' : chatContent(this.parts);
    const more: RawMember[] = this.calls.length === 0 ? [] : [['tool_calls', writeArray(this.calls)]];
    return [chatMessage('assistant', content, more)];
  }
}

function inputMessages(input: RawValue): string[] {
  if (input.isString) return [chatMessage('user', input.raw)];
  const messages: string[] = [];
  let turn = new AssistantTurn();
  const endTurn = () => {
    messages.push(...turn.message);
    turn = new AssistantTurn();
  };
  for (const item of input.items()) {
    const members = item.members();
    // The ids and states of items of earlier responses.
    members.drop('id', 'status');
    const type = members.take('type')?.text() ?? 'message';
    if (type === 'reasoning') continue; // engines' templates leave out the thoughts of earlier turns
    if (type === 'function_call') turn.calls.push(functionCall(members));
    else if (type === 'function_call_output') {
      endTurn();
      messages.push(functionOutput(members));
    } else if (type === 'message') {
      const { role, parts } = readMessage(item, members);
      if (role === 'assistant') turn.parts.push(...parts);
      else {
        endTurn();
        messages.push(chatMessage(role, chatContent(parts)));
      }
    } else throw untranslatable(item.path, ` of the type '${type}'`);
  }
  if (turn.parts.length > 0 && turn.calls.length === 0)
    throw untranslatable(input.path, ', which ends with a beginning of the answer,');
  endTurn();
  return messages;
}

const ROLES: ReadonlyMap<string, string> = new Map([
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['system', 'system'],
  // Few engines' templates know this role.
  ['developer', 'system'],
]);

function readMessage(item: RawValue, members: Members): { role: string; parts: ChatPart[] } {
  const given = members.need('role').text();
  const role = ROLES.get(given);
  const content = members.need('content');
  members.end();
  if (role === undefined)
    throw new ApiError('invalid_value', `'${item.path}.role' must be user, assistant, system or developer.`, {
      param: `${item.path}.role`,
    });
  return { role, parts: content.isString ? [{ text: content.text() }] : content.items().map(partOf) };
}

function partOf(part: RawValue): ChatPart {
  const members = part.members();
  const type = members.need('type').text();
  if (type === 'input_text' || type === 'output_text' || type === 'refusal') {
    const text = members.need(type === 'refusal' ? 'refusal' : 'text').text();
    members.drop('annotations', 'logprobs');
    members.end();
    return { text };
  }
  if (type !== 'input_image') throw untranslatable(part.path, ` of the type '${type}'`);
  const [image, detail] = [members.need('image_url').text(), members.take('detail')?.raw];
  members.end();
  return { image, detail };
}

function functionCall(members: Members): string {
  const [id, name] = [members.need('call_id').text(), members.need('name').text()];
  const input = members.need('arguments').text();
  members.end();
  return chatToolCall(id, name, input);
}

function functionOutput(members: Members): string {
  const [id, output] = [members.need('call_id').raw, members.need('output')];
  members.end();
  const parts = output.isString ? [{ text: output.text() }] : output.items().map(partOf);
  if (!parts.every((part) => 'text' in part)) throw untranslatable(output.path, ' with pictures');
  return chatMessage('tool', chatContent(parts), [['tool_call_id', id]]);
}

function toolsOf(tools: RawValue | undefined): string | undefined {
  const items = tools?.items() ?? [];
  if (items.length === 0) return undefined;
  return writeArray(
    items.map((tool) => {
      const members = tool.members();
      const type = members.need('type').text();
      if (type !== 'function') throw untranslatable(tool.path, ` of the type '${type}'`);
      const written = chatTool(members.need('name'), members, 'parameters');
      members.end();
      return written;
    }),
  );
}

function toolChoice(choice: RawValue | undefined): string | undefined {
  if (choice === undefined || choice.isString) return choice?.raw;
  const members = choice.members();
  const type = members.need('type').text();
  if (type !== 'function') throw untranslatable(choice.path, ` of the type '${type}'`);
  const name = members.need('name').raw;
  members.end();
  return writeObject([
    ['type', '"function"'],
    ['function', writeObject([['name', name]])],
  ]);
}

function reasoning(given: RawValue | undefined): RawMember[] {
  const members = given?.members();
  const effort = members?.take('effort')?.raw;
  // The engine's own reasoning is in the response, so a summary adds nothing.
  members?.drop('summary', 'generate_summary');
  members?.end();
  return [['reasoning_effort', effort]];
}

function textConfig(given: RawValue | undefined): RawMember[] {
  const members = given?.members();
  const [format, verbosity] = [members?.take('format'), members?.take('verbosity')?.raw];
  members?.end();
  return [
    ['response_format', format && chatResponseFormat(format)],
    ['verbosity', verbosity],
  ];
}
