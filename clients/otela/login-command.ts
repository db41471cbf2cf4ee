/**
 * `otela login` gets a key for a machine without a browser (RFC 8628), and writes it into a file that only its owner
 * can read.
 */
import { access, constants, mkdir, stat } from 'node:fs/promises';
import { homedir, hostname, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { writePrivateFile } from '../../node/private-file.ts';
import { startTimer } from '../../node/timers.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { waitWithProgress } from '../../shared/timing/wait-with-progress.ts';
import { fetchOrExplain, responseText, UnreachableError } from './fetch-or-explain.ts';

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
/** Timeout of a request, longer than any machine needs. Until then the command regularly prints that it waits. */
const ANSWER_TIMEOUT_MS = 600_000;
/** Timeout of a poll. Generous, because the gateway sends the response with the key only once. */
const POLL_MS = 120_000;
/** Timeout of the request for the name of the key's owner. Without it the message omits the name. */
const NAME_MS = 20_000;
/** RFC 8628 §3.5: added to the poll interval each time the gateway answers `slow_down`. */
const SLOWER_S = 5;

/** Longest poll interval that a gateway may ask for. A timer of more than 24 days would fire immediately. */
const INTERVAL_MAX_S = 3_600;

const startedSchema = z.object({
  device_code: z.string(),
  user_code: z.string(),
  verification_uri: z.string(),
  expires_in: z.number().positive(),
  interval: z.number().positive().max(INTERVAL_MAX_S).default(5),
});
const grantedSchema = z.object({ access_token: z.string(), expires_in: z.number().optional() });
const refusedSchema = z.object({ error: z.string() });
const meSchema = z.object({ name: z.string().nullable() });

export function keyFile(given: string | undefined): string {
  if (given !== undefined) return given;
  const { XDG_CONFIG_HOME } = process.env;
  return join(XDG_CONFIG_HOME || join(homedir(), '.config'), 'otela', 'key');
}

export async function loginCommand({ gateway, file }: { gateway: string; file: string }, out: Output): Promise<void> {
  const client_id = `${userInfo().username}@${hostname()}`.replace(/[^\x20-\x7e]/g, '?').slice(0, 100);
  await requireRoom(file);
  const started = startedSchema.safeParse(
    await patiently(post(`${gateway}/login/device`, { client_id }), gateway, out),
  ).data;
  if (started === undefined) throw noGateway(gateway, 'its response is not the start of a login');
  const { verification_uri: page, user_code } = started;
  out.print(printable(`Open ${page} in a browser and enter ${user_code}`));
  const { access_token: key } = await granted(gateway, started);
  writePrivateFile(file, `${key}\n`);
  const me = await fetch(`${gateway}/admin/me`, {
    headers: { authorization: `Bearer ${key}` },
    signal: AbortSignal.timeout(NAME_MS),
  }).then(
    (answer) => answer.json(),
    () => undefined,
  );
  const name = meSchema.safeParse(me).data?.name;
  out.print(
    `Logged in${name == null ? '' : ` as ${printable(name)}`}. The key is in ${file}; programs read it from OPENAI_API_KEY:`,
  );
  out.print(`export OPENAI_BASE_URL=${gateway}/v1 OPENAI_API_KEY="$(cat ${quotedPath(file)})"`);
}

function patiently<T>(work: Promise<T>, gateway: string, out: Output): Promise<T> {
  return waitWithProgress(work, startTimer, (seconds) =>
    out.complain(`otela: ${gateway} has not answered for ${seconds} s; waiting`),
  );
}

/**
 * Checks that the key can be stored, before the gateway is asked for a code: a key that cannot be stored would be lost.
 * @throws UsageError
 */
async function requireRoom(file: string): Promise<void> {
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    await access(dirname(file), constants.W_OK);
  } catch (error) {
    throw new UsageError(`--key-file: ${errorText(error)}`);
  }
  const known = await stat(file).catch(() => undefined);
  if (known?.isDirectory()) throw new UsageError(`--key-file: ${file} is a directory`);
}

async function granted(
  gateway: string,
  started: z.infer<typeof startedSchema>,
): Promise<z.infer<typeof grantedSchema>> {
  const until = performance.now() + started.expires_in * 1_000;
  let intervalS = started.interval;
  while (performance.now() < until) {
    await delay(intervalS * 1_000);
    let answer: unknown;
    try {
      answer = await post(
        `${gateway}/login/device/token`,
        { grant_type: GRANT, device_code: started.device_code },
        POLL_MS,
      );
    } catch (error) {
      if (error instanceof UsageError) throw error;
      continue; // RFC 8628 §3.5: continue after a connection failure
    }
    const done = grantedSchema.safeParse(answer).data;
    if (done !== undefined) return done;
    const error = refusedSchema.safeParse(answer).data?.error;
    if (error === 'slow_down') intervalS += SLOWER_S;
    else if (error === 'access_denied') throw new UsageError('the login was refused');
    else if (error !== 'authorization_pending')
      throw new UsageError(printable(`the login ended: ${error ?? 'unknown response'}`));
  }
  throw new UsageError('the code was not entered in time: start again');
}

/**
 * The body of a response that is not a gateway error.
 * @throws UsageError with the gateway's message; UnreachableError if the gateway is unreachable
 */
async function post(url: string, form: Record<string, string>, withinMs = ANSWER_TIMEOUT_MS): Promise<unknown> {
  const answer = await fetchOrExplain(url, {
    method: 'POST',
    body: new URLSearchParams(form),
    redirect: 'error', // the device code must not reach another server
    signal: AbortSignal.timeout(withinMs),
  });
  const text = await responseText(answer).catch(() => '');
  const body = tryParseJson(text);
  if (body === undefined && answer.status < 500) throw noGateway(new URL(url).origin, `HTTP ${answer.status}`);
  const said = openAiErrorMessage(text);
  if (answer.status >= 500) throw new UnreachableError(printable(said ?? `no gateway answers: HTTP ${answer.status}`));
  if (said === undefined) return body;
  throw new UsageError(printable(said));
}

function noGateway(url: string, why: string): UsageError {
  return new UsageError(`${url} is not a gateway: ${why}`);
}

function quotedPath(path: string): string {
  return `'${path.replaceAll("'", "'\\''")}'`;
}
