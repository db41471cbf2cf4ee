import * as z from 'zod';
import { readKeyFile } from '../../node/private-file.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { SchedulerError } from '../errors.ts';

/** The JSON API of a gateway. */
export interface PlannerGateway {
  url: string;
  get(path: string): Promise<unknown>;
  put(path: string, body: unknown): Promise<void>;
  delete(path: string): Promise<void>;
}

/** Timeout of a gateway's answer, for which a round of the controller waits. */
const ANSWER = { leastMs: 10_000, mostMs: 120_000 };
/** 4,096 nodes of 16 KiB; a longer answer is not a registry. */
const ANSWER_MAX_BYTES = 64 * 1024 * 1024;

/** The gateway answered with an error. */
export class GatewayRefusal extends SchedulerError {
  /** HTTP status. */
  readonly status: number;
  constructor(status: number, message: string) {
    super('gateway', message);
    this.status = status;
  }
}

/**
 * `keyFile` contains an operator's key. Only GET /v1/registry may work without it, if the operator opened that route.
 */
export function gatewayFrom(url: string, keyFile: string | undefined, fetcher: typeof fetch = fetch): PlannerGateway {
  const base = parseUrl(url);
  const key = keyFile === undefined ? undefined : readKey(keyFile);
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const answers = new AdaptiveTimeout(ANSWER);
  const ask = async (path: string, init: RequestInit): Promise<Response> => {
    let response: Response;
    try {
      response = await answers.bound(
        () => performance.now(),
        (ms) =>
          fetcher(new URL(path, base), {
            ...init,
            headers: { ...headers, ...init.headers },
            redirect: 'error',
            signal: AbortSignal.timeout(ms),
          }),
      );
    } catch (cause) {
      throw new SchedulerError('gateway', `${base.origin} does not answer ${path}: ${errorReason(cause)}`, { cause });
    }
    if (!response.ok) {
      const refused = response.status === 401 || response.status === 403;
      const hint = refused ? ' (give an operator’s key with --key-file)' : '';
      const why = await messageIn(response, path);
      throw new GatewayRefusal(response.status, `${base.origin}${path} answers ${response.status}${hint}${why}`);
    }
    return response;
  };
  return {
    url: base.origin,
    async get(path) {
      const text = await bounded(await ask(path, {}), path);
      try {
        return JSON.parse(text);
      } catch (cause) {
        throw new SchedulerError('gateway', `${base.origin}${path} did not answer JSON`, { cause });
      }
    },
    async put(path, body) {
      const response = await ask(path, {
        method: 'PUT',
        body: JSON.stringify(body),
        headers: { 'content-type': 'application/json' },
      });
      await response.body?.cancel();
    },
    async delete(path) {
      const response = await ask(path, { method: 'DELETE' });
      await response.body?.cancel();
    },
  };
}

function parseUrl(url: string): URL {
  try {
    const parsed = new URL(url);
    if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') throw new Error('neither http nor https');
    return parsed;
  } catch (cause) {
    throw new SchedulerError(
      'usage',
      `--gateway is a URL such as https://gateway.example, not ${JSON.stringify(url.slice(0, 200))}`,
      { cause },
    );
  }
}

function readKey(file: string): string {
  try {
    return readKeyFile(file);
  } catch (cause) {
    throw new SchedulerError('usage', `--key-file ${file}: ${errorReason(cause)}`, { cause });
  }
}

const envelopeSchema = z.object({ error: z.object({ message: z.string().max(2048) }) });

/**
 * Returns the gateway's error message if the response has its error form. An operator reads it, so only printable
 * characters are kept.
 */
async function messageIn(response: Response, path: string): Promise<string> {
  try {
    const { error } = envelopeSchema.parse(JSON.parse(await bounded(response, path)));
    return `: ${error.message.replace(/[^\x20-\x7e]+/g, ' ')}`;
  } catch {
    return '';
  }
}

async function bounded(response: Response, path: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > ANSWER_MAX_BYTES)
        throw new SchedulerError('gateway', `${path} answers more than ${ANSWER_MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
  } catch (cause) {
    if (cause instanceof SchedulerError) throw cause;
    throw new SchedulerError('gateway', `the answer to ${path} broke off: ${errorReason(cause)}`, { cause });
  }
  return Buffer.concat(chunks).toString('utf8');
}

function errorReason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? cause.cause.message : cause.message;
}
