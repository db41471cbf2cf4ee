/** A gateway's admin API with an operator's key. */
import { readFileSync } from 'node:fs';
import { Agent, fetch } from 'undici';
import * as z from 'zod';
import { readKeyFile } from '../../node/private-file.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { errorLine, FactoryError } from '../errors.ts';

const ANSWER = { leastMs: 10_000, mostMs: 120_000 };
/** 4,096 nodes of 16 KiB. */
const ANSWER_MAX_BYTES = 64 * 1024 * 1024;

/** The gateway answered with a refusal and did nothing. */
export class AdminRefusal extends Error {
  override name = 'AdminRefusal';
  /** HTTP status below 500. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface AdminApi {
  /** All three throw AdminRefusal, or Error if the outcome is unknown. */
  get(path: string): Promise<unknown>;
  put(path: string, body: unknown): Promise<void>;
  delete(path: string): Promise<void>;
}

export interface AdminApiOptions {
  gateway: string;
  keyFile: string;
  caFile?: string | undefined;
}

const envelopeSchema = z.object({ error: z.object({ message: z.string() }) });

/** @throws FactoryError `config` if the key's file is missing, readable by others, or not a key */
export function adminApi({ gateway, keyFile, caFile }: AdminApiOptions): AdminApi {
  const key = readKey(keyFile);
  const ca = caFile === undefined ? {} : { connect: { ca: readFileSync(caFile) } };
  const dispatcher = new Agent(ca);
  const answers = new AdaptiveTimeout(ANSWER);
  const ask = async (method: string, path: string, body?: unknown): Promise<string> => {
    const once = async (ms: number) => {
      const response = await fetch(new URL(path, gateway), {
        method,
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        redirect: 'error',
        dispatcher,
        signal: AbortSignal.timeout(ms),
      });
      return { response, text: await bounded(response.body) };
    };
    const { response, text } = await answers.bound(() => performance.now(), once);
    if (response.ok) return text;
    const why = `${method} ${path} is answered ${response.status}: ${messageIn(text)}`;
    throw response.status < 500 ? new AdminRefusal(response.status, why) : new Error(why);
  };
  return {
    get: async (path) => JSON.parse(await ask('GET', path)),
    put: async (path, body) => void (await ask('PUT', path, body)),
    delete: async (path) => void (await ask('DELETE', path)),
  };
}

function readKey(path: string): string {
  try {
    return readKeyFile(path);
  } catch (cause) {
    throw new FactoryError('config', `the operator's key ${path}: ${errorLine(cause)}`, { cause });
  }
}

function messageIn(text: string): string {
  try {
    return errorLine(envelopeSchema.parse(JSON.parse(text)).error.message);
  } catch {
    return text.slice(0, 200);
  }
}

async function bounded(body: AsyncIterable<Uint8Array> | null): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body ?? []) {
    bytes += piece.length;
    if (bytes > ANSWER_MAX_BYTES) throw new Error(`the gateway's answer is larger than ${ANSWER_MAX_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}
