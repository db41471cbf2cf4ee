/** The gateway that a command asks, and the key for it. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readKeyFile, readPrivateFile, writePrivateFile } from '../../node/private-file.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { fetchOrExplain, responseText, UnreachableError } from './fetch-or-explain.ts';
import { keyFile } from './login-command.ts';

export interface GatewayAccess {
  /** URL without a path and without a slash at its end. */
  gateway: string;
  key: string;
  /** The file that contains the key; undefined if the key is from the environment. */
  file: string | undefined;
}

/** Timeout of a request, for a gateway on a slow machine. */
const ANSWER_TIMEOUT_MS = 60_000;
/** Timeout of an upload: 200 MB over 2 Mbit/s. */
const UPLOAD_TIMEOUT_MS = 15 * 60_000;

/** @throws UsageError if the text is not an http URL */
export function gatewayUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) throw new UsageError(`--gateway: "${text}" is not an http URL`);
  return url.href.replace(/\/(?:v1\/?)?$/, '');
}

/**
 * Requires https or loopback, because requests or responses contain the key (RFC 6761 §6.3, RFC 1122 §3.2.1.3).
 * @throws UsageError
 */
export function requirePrivate(gateway: string): void {
  const { protocol, hostname } = new URL(gateway);
  if (protocol === 'https:' || /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname)) return;
  throw new UsageError(
    `${gateway} is not encrypted: others in the network could read the key. Use https://, or log in with --insecure`,
  );
}

const gatewayFile = () => join(dirname(keyFile(undefined)), 'gateway');

/** Remembers the gateway of the last login, for the commands that follow. */
export function rememberGateway(gateway: string): void {
  writePrivateFile(gatewayFile(), `${gateway}\n`);
}

/**
 * The key of this machine: OTELA_API_KEY, otherwise the file that `otela login` wrote.
 * @throws UsageError
 */
export function readKey(given: string | undefined): Pick<GatewayAccess, 'key' | 'file'> {
  const { OTELA_API_KEY, OTELA_KEY } = process.env;
  const named = OTELA_API_KEY || OTELA_KEY; // The second is its earlier name.
  if (given === undefined && named) return { key: named, file: undefined };
  const file = keyFile(given);
  if (!existsSync(file)) throw new UsageError(`there is no key in ${file}: run otela login --gateway URL`);
  try {
    return { key: readKeyFile(file), file };
  } catch (error) {
    throw new UsageError(`${file}: ${errorText(error)}`);
  }
}

/** @throws UsageError if there is no gateway or no key, or if the key would cross a network in clear text */
export function gatewayAccess(values: {
  gateway?: string | undefined;
  'key-file'?: string | undefined;
}): GatewayAccess {
  const { OTELA_GATEWAY } = process.env;
  const last = lastGateway();
  const named = values.gateway ?? (OTELA_GATEWAY || undefined) ?? last;
  if (named === undefined) throw new UsageError('a gateway is missing: give --gateway URL, or run otela login');
  const gateway = gatewayUrl(named);
  // The last login chose its gateway, if necessary with --insecure.
  if (gateway !== last) requirePrivate(gateway);
  return { gateway, ...readKey(values['key-file']) };
}

function lastGateway(): string | undefined {
  try {
    return readPrivateFile(gatewayFile()).trim() || undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads a resource of the gateway.
 * @throws UsageError with the gateway's message; UnreachableError if no gateway answers
 */
export function readResource(access: Pick<GatewayAccess, 'gateway' | 'key'>, path: string): Promise<unknown> {
  return ask(access, path, {});
}

/**
 * Sends a POST request. @param body JSON text, or a form @throws as `readResource`
 */
export function sendResource(
  access: Pick<GatewayAccess, 'gateway' | 'key'>,
  path: string,
  body: string | FormData | undefined,
  method: 'POST' | 'PUT' | 'DELETE' = 'POST',
): Promise<unknown> {
  const type: Record<string, string> = typeof body === 'string' ? { 'content-type': 'application/json' } : {};
  return ask(access, path, { method, headers: type, ...(body === undefined ? {} : { body }) });
}

/** Uploads a file. It may have 200 MB, so it gets more time than a request. @throws as `readResource` */
export function sendFile(access: Pick<GatewayAccess, 'gateway' | 'key'>, form: FormData): Promise<unknown> {
  return ask(access, '/v1/files', { method: 'POST', body: form }, UPLOAD_TIMEOUT_MS);
}

async function ask(
  { gateway, key }: Pick<GatewayAccess, 'gateway' | 'key'>,
  path: string,
  init: { method?: string; headers?: Record<string, string>; body?: string | FormData },
  withinMs = ANSWER_TIMEOUT_MS,
): Promise<unknown> {
  const answer = await fetchOrExplain(`${gateway}${path}`, {
    ...init,
    headers: { ...init.headers, authorization: `Bearer ${key}` },
    redirect: 'error', // the key must not reach another server
    signal: AbortSignal.timeout(withinMs),
  });
  const text = await responseText(answer).catch(() => '');
  if (answer.status >= 500) throw new UnreachableError(`${gateway} returned ${answer.status}`);
  if (!answer.ok) throw new UsageError(printable(openAiErrorMessage(text) ?? `${gateway} returned ${answer.status}`));
  const body = tryParseJson(text);
  if (body === undefined) throw new UsageError(`${gateway} is not a gateway: its response is not JSON`);
  return body;
}
