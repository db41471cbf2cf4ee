/** A client of the admin REST API: sends requests and prints responses. */
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { causeText } from '../../node/gateway-client.ts';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { EXIT_UNAVAILABLE, type Flags, JSON_FLAG, UsageError } from '../../shared/command-line/index.ts';
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { waitWithProgress } from '../../shared/timing/wait-with-progress.ts';
import { CommandError } from '../command-error.ts';
import { startTimer } from '../platform/start-timer.ts';
import { isStdoutClosed } from './closed-stdout.ts';
import { Table } from './table.ts';

/** The gateway refused the request. Printed without a stack trace. */
export class ClientError extends CommandError {}

/** No gateway answers at the address. */
class Unreachable extends ClientError {
  override readonly exitCode = EXIT_UNAVAILABLE;
}

/** The gateway answered 5xx, or its response was cut. */
class Failing extends ClientError {}

/** How long a command that waits for minutes, such as a rollout, retries while the gateway cannot be reached. */
const AWAY_RETRY_MAX_MS = 600_000;

/**
 * Calls `work` until it succeeds or AWAY_RETRY_MAX_MS have passed. Retries only if the gateway cannot be reached,
 * fails, or cuts its response.
 * @throws ClientError
 */
export async function outlasting<T>(work: () => Promise<T>, pauseMs: number): Promise<T> {
  for (const until = performance.now() + AWAY_RETRY_MAX_MS; ; ) {
    try {
      return await work();
    } catch (error) {
      const isAway = error instanceof Unreachable || error instanceof Failing;
      if (!isAway || performance.now() > until) throw error;
      await delay(pauseMs);
    }
  }
}

/**
 * Maximum time for a response, longer than any machine needs. Meanwhile the command reports regularly that it is
 * waiting, and the user can end it.
 */
const ANSWER_MAX_MS = 600_000;

/** Largest response that is kept in memory. Lists come in pages, so those of a gateway are far smaller. */
const ANSWER_MAX_BYTES = 64 * 1024 * 1024;

export const CONNECTION_FLAGS = {
  url: { default: 'http://127.0.0.1:8787', value: 'URL', help: 'URL of the gateway' },
  'key-file': {
    default: './data/admin.key',
    value: 'FILE',
    takes: 'file',
    help: "file with an operator's API key",
  },
  ...JSON_FLAG,
} as const satisfies Flags;

export interface ApiTarget {
  path: string;
  url: string;
  keyFile: string;
  json: boolean;
}

/** Returns the target from the values of CONNECTION_FLAGS. @throws UsageError */
export function targetAt(path: string, values: { url: string; 'key-file': string; json: boolean }): ApiTarget {
  if (!URL.canParse(values.url) || !/^https?:$/.test(new URL(values.url).protocol))
    throw new UsageError(`--url ${values.url} is not a URL such as https://gw.example.org`);
  // Users may paste the URL for OpenAI clients, which ends in /v1.
  return { path, url: values.url.replace(/\/(v1\/*)?$/, ''), keyFile: values['key-file'], json: values.json };
}

export type ListRow = (value: unknown) => string[];

export function printAnswer(target: ApiTarget, row: ListRow, answer: unknown): number {
  console.log(target.json ? JSON.stringify(answer) : printable(row(answer).join('  ')));
  return 0;
}

const pageSchema = z.object({
  data: z.array(z.looseObject({ id: z.string().optional(), name: z.string().optional() })),
  has_more: z.boolean(),
});

/** How objects of one kind are listed: the column names, and the cells of an object. */
interface ListColumns {
  head: readonly string[];
  row: ListRow;
}

/** Prints a list page by page, with one line per object. */
export async function printList(target: ApiTarget, { head, row }: ListColumns): Promise<number> {
  const table = new Table(head);
  for (let after = '', more = true; more && !isStdoutClosed(); ) {
    const { data, has_more } = pageSchema.parse(await askGateway(target, 'GET', after));
    for (const one of data) {
      if (target.json) console.log(JSON.stringify(one));
      else table.add(row(one));
    }
    if (!target.json) table.flush();
    const last = data.at(-1);
    after = `?after=${encodeURIComponent(last?.id ?? last?.name ?? '')}`;
    more = has_more && data.length > 0;
  }
  return 0;
}

/**
 * Runs `list` (by `printList`) or `get ID`, which every list of objects has. `others`: further verbs, which are called
 * with the id and its path.
 * @throws UsageError with `usage` for any other verb
 */
export function listOrGet(
  target: ApiTarget,
  listed: ListColumns,
  [verb = '', what]: readonly string[],
  usage: string,
  others: Readonly<Record<string, (what: string, path: string) => Promise<number>>>,
): Promise<number> {
  if (verb === 'list' && what === undefined) return printList(target, listed);
  const other = Object.hasOwn(others, verb) ? others[verb] : undefined;
  if (what === undefined || (other === undefined && verb !== 'get'))
    throw new UsageError(`usage: otela-gateway ${usage}`);
  const path = `/${encodeURIComponent(what)}`;
  if (other !== undefined) return other(what, path);
  return askGateway(target, 'GET', path).then((answer) => printAnswer({ ...target, json: true }, listed.row, answer));
}

/**
 * Characters that a header may contain. With any other character, fetch would throw an error whose message contains the
 * key.
 */
const KEY = /^[\x21-\x7e]+$/;

/** @throws ClientError with the gateway's message */
export async function askGateway(
  target: ApiTarget,
  method: string,
  path: string,
  body?: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  const answering = send(target, method, path, body, AbortSignal.timeout(ANSWER_MAX_MS)).then(
    async (response) => [response, await textOf(response)] as const,
  );
  const { host } = new URL(target.url);
  const [response, text] = await waitWithProgress(answering, startTimer, (seconds) =>
    console.error(`${host} has not answered ${method} ${target.path}${path} for ${seconds} s; waiting`),
  );
  const json = tryParseJson(text);
  if (response.ok && json !== undefined) return json;
  throw refusal(response.status, text);
}

/** Returns the response as a stream, of any length. @throws ClientError */
export async function download(target: ApiTarget, path: string): Promise<ReadableStream<Uint8Array>> {
  const response = await send(target, 'GET', path, undefined, undefined);
  if (response.ok && response.body !== null) return response.body;
  throw refusal(response.status, await textOf(response));
}

/** Sends a form without a time limit. Its files are read while they are sent. @throws ClientError */
export async function upload(target: ApiTarget, path: string, form: FormData): Promise<unknown> {
  const response = await send(target, 'POST', path, form, undefined);
  const text = await textOf(response);
  const json = tryParseJson(text);
  if (response.ok && json !== undefined) return json;
  throw refusal(response.status, text);
}

async function send(
  target: ApiTarget,
  method: string,
  path: string,
  body: Readonly<Record<string, unknown>> | FormData | undefined,
  signal: AbortSignal | undefined,
): Promise<Response> {
  const key = (await readFile(target.keyFile, 'utf8').catch(() => undefined))?.trim();
  if (key === undefined)
    throw new ClientError(`cannot read ${target.keyFile}; give the file of an operator's key with --key-file`);
  if (!KEY.test(key)) throw new ClientError(`${target.keyFile} must contain exactly one key on one line`);
  const url = new URL(target.url.replace(/\/+$/, '') + target.path + path);
  const isForm = body instanceof FormData;
  const headers = { authorization: `Bearer ${key}`, ...(isForm ? {} : { 'content-type': 'application/json' }) };
  const init = {
    method,
    headers,
    ...(signal === undefined ? {} : { signal }),
    ...(body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) }),
  };
  return fetch(url, init).catch((cause: unknown) => {
    throw new Unreachable(`no gateway answers at ${url.origin}: ${causeText(cause)}`, { cause });
  });
}

/** @throws ClientError if the response is cut or larger than ANSWER_MAX_BYTES */
async function textOf(response: Response): Promise<string> {
  const { origin } = new URL(response.url);
  const text = await readTextAtMost(response.body, ANSWER_MAX_BYTES).catch((cause: unknown) => {
    throw new Failing(`${origin} ended its response early`, { cause });
  });
  if (text === undefined) throw new ClientError(`${origin} sent more than ${ANSWER_MAX_BYTES / 2 ** 20} MiB`);
  return text;
}

function refusal(status: number, text: string): ClientError {
  const Kind = status >= 500 || status < 300 ? Failing : ClientError;
  return new Kind(printable(openAiErrorMessage(text) ?? `${status} ${text.slice(0, 500)}`));
}

/** @throws UsageError if the verb would ignore a flag that was given */
export function refuseIgnoredFlags(
  verb: string | undefined,
  flags: Readonly<Record<string, readonly [given: unknown, of: string]>>,
): void {
  for (const [flag, [given, of]] of Object.entries(flags))
    if (given !== undefined && verb !== of) throw new UsageError(`--${flag} works only with ${of}`);
}

const deletedSchema = z.object({ deleted: z.boolean() });

/** True if a DELETE found the object. */
export const wasDeleted = (answer: unknown): boolean => deletedSchema.parse(answer).deleted;
