/** `otela chat`: one answer, or a conversation, in the terminal. */
import { randomUUID } from 'node:crypto';
import type { Interface } from 'node:readline/promises';
import type { Readable } from 'node:stream';
import * as z from 'zod';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { type SseEvent, SseSplitter, sseFields } from '../../shared/openai/sse-splitter.ts';
import { readWaitComment, waitText } from '../../shared/openai/wait-comment.ts';
import { printable, printableLines } from '../../shared/terminal/printable.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { fetchOrExplain, responseText, UnreachableError } from './fetch-or-explain.ts';
import type { GatewayAccess } from './gateway-access.ts';
import { gatewayModels } from './gateway-models.ts';
import { chosenModel } from './launch/launch-command.ts';

/** Maximum bytes of stdin: more than any context. */
const INPUT_MAX_BYTES = 8 * 1024 * 1024;
/** Maximum characters of an answer and of a conversation. */
const ANSWER_MAX_CHARS = 4_000_000;
const CONVERSATION_MAX_CHARS = 8_000_000;

interface ChatOptions {
  model: string | undefined;
  system: string | undefined;
  /** Words of the command line; empty: the question is on stdin. */
  question: string;
}

export interface ChatTerminal {
  input: Readable & { isTTY?: boolean };
  /** Writes a piece of the answer. */
  write(text: string): void;
  complain(line: string): void;
  /** Opens the line editor of a conversation. */
  open(): Promise<Interface>;
}

interface Message {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

const chunkSchema = z.object({
  choices: z.array(z.object({ delta: z.object({ content: z.string().nullish() }).optional() })).optional(),
  error: z.unknown().optional(),
});

/** @throws UsageError for a question or a model that the gateway refuses; UnreachableError if the answer breaks off */
export async function chatCommand(access: GatewayAccess, options: ChatOptions, terminal: ChatTerminal): Promise<void> {
  const { id: model } = chosenModel(await gatewayModels(access, true), options.model);
  const messages: Message[] = options.system === undefined ? [] : [{ role: 'system', content: options.system }];
  const conversation = new Conversation({ ...access, model }, messages, terminal);
  if (options.question === '' && terminal.input.isTTY === true) return converse(conversation, model, terminal);
  const piped = terminal.input.isTTY === true ? '' : await inputText(terminal.input);
  const question = [options.question, piped].filter((part) => part !== '').join('\n\n');
  if (question === '') throw new UsageError('the question is missing: otela chat "Explain fair share on Slurm"');
  await conversation.ask(question);
}

async function converse(conversation: Conversation, model: string, terminal: ChatTerminal): Promise<void> {
  terminal.complain(printable(`${model}. Ctrl-D ends the conversation.`));
  const editor = await terminal.open();
  editor.setPrompt('> ');
  let isOpen = true;
  editor.once('close', () => {
    isOpen = false;
  });
  // The input may end while an answer is printed. A closed editor would refuse to prompt.
  const prompt = () => {
    if (isOpen) editor.prompt();
  };
  prompt();
  try {
    for await (const line of editor) {
      if (line.trim() !== '') {
        // A question that fails does not end the conversation.
        await conversation.ask(line).catch((error: unknown) => {
          if (!(error instanceof UsageError || error instanceof UnreachableError)) throw error;
          terminal.complain(printable(error.message));
        });
      }
      prompt();
    }
  } finally {
    editor.close();
  }
}

async function inputText(input: Readable): Promise<string> {
  const text = await readTextAtMost(input, INPUT_MAX_BYTES);
  if (text === undefined) throw new UsageError(`stdin is larger than ${INPUT_MAX_BYTES} bytes`);
  return text.trim();
}

class Conversation {
  readonly #target: GatewayAccess & { model: string };
  readonly #messages: Message[];
  readonly #terminal: ChatTerminal;
  /** Keeps the conversation at the node that has read it. */
  readonly #id = randomUUID();

  constructor(target: GatewayAccess & { model: string }, messages: Message[], terminal: ChatTerminal) {
    this.#target = target;
    this.#messages = messages;
    this.#terminal = terminal;
  }

  /** Writes the answer as it arrives. The conversation keeps question and answer only if the answer was complete. */
  async ask(question: string): Promise<void> {
    const asked: Message[] = [...this.#messages, { role: 'user', content: question }];
    if (asked.reduce((sum, { content }) => sum + content.length, 0) > CONVERSATION_MAX_CHARS)
      throw new UsageError(`the conversation has more than ${CONVERSATION_MAX_CHARS} characters: start another`);
    const answer = await this.#stream(asked);
    this.#messages.push({ role: 'user', content: question }, { role: 'assistant', content: answer });
  }

  async #stream(messages: readonly Message[]): Promise<string> {
    const { gateway, key, model } = this.#target;
    const response = await fetchOrExplain(`${gateway}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'x-otela-session': this.#id,
        'x-otela-resume': '1',
      },
      body: JSON.stringify({ model, messages, stream: true }),
      redirect: 'error', // the key must not reach another server
    });
    if (!response.ok) {
      const text = await responseText(response).catch(() => '');
      const message = printable(openAiErrorMessage(text) ?? `${gateway} returned ${response.status}`);
      throw response.status >= 500 ? new UnreachableError(message) : new UsageError(message);
    }
    const answer = new Answer(this.#terminal);
    const splitter = new SseSplitter();
    try {
      for await (const chunk of response.body ?? []) splitter.push(chunk, (event) => answer.take(event));
    } catch (cause) {
      if (cause instanceof UnreachableError) throw cause;
      throw new UnreachableError('the answer broke off before its end', { cause });
    } finally {
      answer.end();
    }
    if (!answer.isComplete) throw new UnreachableError('the answer broke off before its end');
    return answer.text;
  }
}

/** The text of one answer. It comes from a node, so it must not control the terminal. */
class Answer {
  readonly #terminal: ChatTerminal;
  text = '';
  isComplete = false;
  #waits = '';

  constructor(terminal: ChatTerminal) {
    this.#terminal = terminal;
  }

  take(event: SseEvent): void {
    const { data } = sseFields(event);
    const line = new TextDecoder().decode(data ?? event.bytes).trim();
    if (data === undefined) return this.#hear(line);
    if (line === '[DONE]') {
      this.isComplete = true;
      return;
    }
    const { choices = [], error } = chunkSchema.safeParse(tryParseJson(line)).data ?? {};
    if (error !== undefined && error !== null)
      throw new UnreachableError(printable(openAiErrorMessage(line) ?? 'the engine failed'));
    const piece = choices[0]?.delta?.content ?? '';
    if (this.text.length + piece.length > ANSWER_MAX_CHARS)
      throw new UnreachableError(`the answer has more than ${ANSWER_MAX_CHARS} characters`);
    this.text += piece;
    this.#terminal.write(printableLines(piece));
  }

  /** Ends the last line. */
  end(): void {
    if (this.text !== '' && !this.text.endsWith('\n')) this.#terminal.write('\n');
  }

  #hear(line: string): void {
    const wait = readWaitComment(line.replace(/^:/, ''));
    const words = wait === undefined ? '' : waitText(wait);
    if (words === '' || words === this.#waits) return;
    this.#waits = words;
    this.#terminal.complain(`${words} …`);
  }
}
