/** A session's requests for batch work to one gateway; see gateway/batch/leases/agent-routes.ts. */
import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Agent, type Dispatcher, ProxyAgent, request } from 'undici';
import * as z from 'zod';
import { GatewayRefusalError } from '../../node/gateway-client.ts';
import {
  BATCH_SIGNATURE_HEADER,
  batchRequestMessage,
  CLOCK_HEADER,
  writeBatchSignature,
} from '../../shared/batch/batch-signature.ts';
import type { NodeContexts } from '../../shared/batch/function-context.ts';
import { OUTPUT_HEADER, type OutputFile } from '../../shared/batch/function-files.ts';
import { SECRET_MAX_CHARS, SECRET_NAME } from '../../shared/batch/function-secret.ts';
import {
  type CommitCounts,
  commitCountsSchema,
  type GrantedLease,
  grantedLease,
  type LeaseState,
  leaseState,
} from '../../shared/batch/granted-lease.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import { readAtMost } from '../../shared/collections/read-at-most.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { gatewayErrorCode } from '../../shared/openai/error-message.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { nodeCrypto } from '../host/node-crypto.ts';

const secretsSchema = z.object({
  secrets: z.record(z.string().regex(SECRET_NAME), z.string().max(SECRET_MAX_CHARS)),
});

/** The place of a file at the gateway. `stored`: the gateway has the bytes. */
const placeSchema = z.object({ id: z.string().max(128), stored: z.boolean() });

export interface SessionCredentials {
  ticket: Ticket;
  key: Signer;
}

/** Maximum length of a chunk: 256 KiB, or a single line of up to 4 MiB and its envelope. */
const CHUNK_MAX_BYTES = 5 * 1024 * 1024;
/** Timeout of one request. Longer than the gateway waits for a batch. */
const ANSWER_MS = 60_000;
const CONNECTIONS_MAX = 4;

export class BatchGatewayClient {
  readonly #url: URL;
  readonly #credentials: () => SessionCredentials | undefined;
  readonly #dispatcher: Dispatcher;
  /** Milliseconds by which the gateway's clock is ahead of this agent's, according to the gateway's last answer. */
  #aheadMs = 0;

  /** @param credentials returns the credentials of the agent's current session */
  constructor(url: URL, credentials: () => SessionCredentials | undefined, proxy: URL | undefined) {
    this.#url = url;
    this.#credentials = credentials;
    const options = { connections: CONNECTIONS_MAX, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS };
    this.#dispatcher = proxy === undefined ? new Agent(options) : new ProxyAgent({ uri: proxy.href, ...options });
  }

  /**
   * Leases lines for models. Undefined if there is no work for this node now.
   * @throws Error if the gateway refuses or does not answer
   */
  async lease(
    models: readonly string[],
    prefix: number | undefined,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<GrantedLease | undefined> {
    const asked = { models, ...(prefix === undefined ? {} : { prefix }), wait_ms: waitMs, lines: true };
    const answer = await this.#post('lease', asked, signal);
    return answer === undefined ? undefined : parsed(grantedLease, answer);
  }

  /**
   * Leases lines for functions.
   * @param functions the contexts on this node, and the owners whose functions may run here
   */
  async leaseFunction(
    functions: NodeContexts & { owners?: readonly string[] },
    waitMs: number,
    signal: AbortSignal,
  ): Promise<GrantedLease | undefined> {
    const answer = await this.#post('lease', { models: [], functions, wait_ms: waitMs, lines: true }, signal);
    return answer === undefined ? undefined : parsed(grantedLease, answer);
  }

  /** Downloads the function's Python code. @throws Error */
  async functionCode(lease: GrantedLease, signal: AbortSignal): Promise<Uint8Array> {
    return (await this.#post('function', refOf(lease), signal)) ?? Buffer.alloc(0);
  }

  /** Returns the secrets that the function of a lease declares. @throws Error */
  async functionSecrets(lease: GrantedLease, signal: AbortSignal): Promise<Record<string, string>> {
    return parsed(secretsSchema, await this.#post('secrets', refOf(lease), signal)).secrets;
  }

  /** Copies a file that lines of a lease's batch name to `path`, which must not exist. @throws Error */
  async file(
    lease: GrantedLease,
    { id, path, most }: { id: string; path: string; most: number },
    signal: AbortSignal,
  ): Promise<void> {
    const response = await this.#send('file', Buffer.from(JSON.stringify({ ...refOf(lease), file: id })), signal);
    if (response.statusCode !== 200) {
      const bytes = await readAtMost(response.body, CHUNK_MAX_BYTES);
      const said = bytes === undefined ? '' : Buffer.from(bytes.buffer).toString('utf8');
      const message = `${this.#url.host} answers ${response.statusCode}: ${said.slice(0, 300)}`;
      throw new GatewayRefusalError(response.statusCode, gatewayErrorCode(said), message);
    }
    await pipeline(response.body, atMost(most), createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  }

  /**
   * Stores a file that a call of a lease wrote, unless the gateway has it.
   * @param content reads the file from its start
   * @returns the id of the file
   * @throws Error if the gateway refuses or does not answer
   */
  async sendFile(
    lease: GrantedLease,
    { name, bytes, sha256 }: OutputFile,
    content: () => Readable,
    signal: AbortSignal,
  ): Promise<string> {
    const asked = { ...refOf(lease), name, bytes, sha256 };
    const place = parsed(placeSchema, await this.#post('output', asked, signal));
    if (place.stored) return place.id;
    const body = { bytes, stream: content() };
    const sent = await this.#send('output-content', Buffer.from(JSON.stringify(asked)), signal, body);
    return parsed(placeSchema, this.#checked(await readAnswer(sent))).id;
  }

  /** Downloads the bytes of the leased chunk. @throws Error */
  async chunk(lease: GrantedLease, signal: AbortSignal): Promise<Uint8Array> {
    const sent = lease.lines === undefined ? undefined : Buffer.from(lease.lines);
    if (sent?.length === lease.bytes) return sent;
    const bytes = await this.#post('chunk', refOf(lease), signal);
    if (bytes?.length !== lease.bytes) throw new Error('the gateway sent a chunk of the wrong length');
    return bytes;
  }

  /** @param log output of the lease's function @throws Error if the gateway refuses or does not answer */
  async commit(lease: GrantedLease, results: readonly LineResult[], log = ''): Promise<CommitCounts> {
    const sent = { ...refOf(lease), results, ...(log === '' ? {} : { log }) };
    return parsed(commitCountsSchema, await this.#post('commit', sent));
  }

  /** @throws Error if the gateway refuses or does not answer */
  async renew(lease: GrantedLease): Promise<LeaseState> {
    return parsed(leaseState, await this.#post('renew', refOf(lease)));
  }

  /** Returns lines of a lease that have not begun. @throws Error if the gateway refuses or does not answer */
  async giveBack(lease: GrantedLease, lines: readonly number[]): Promise<void> {
    await this.#post('release', { ...refOf(lease), lines });
  }

  /**
   * @param declined why this node cannot run the lease's function
   * @throws Error if the gateway refuses or does not answer
   */
  async release(lease: GrantedLease, declined?: string): Promise<void> {
    await this.#post('release', { ...refOf(lease), ...(declined === undefined ? {} : { declined }) });
  }

  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }

  async #post(verb: string, value: unknown, signal?: AbortSignal): Promise<Buffer | undefined> {
    const body = Buffer.from(JSON.stringify(value));
    const first = await this.#ask(verb, body, signal);
    // If the agent's clock and the gateway's differ too much, or if the gateway has just started, the gateway answers
    // with its time. The request is then sent once more, with the corrected time.
    const answer = first.clockMs === undefined ? first : await this.#ask(verb, body, signal);
    return this.#checked(answer);
  }

  /** @throws GatewayRefusalError */
  #checked({ status, text }: Answer): Buffer | undefined {
    if (status === 204) return undefined;
    if (status === 200) return text;
    const said = text.toString('utf8');
    const message = `${this.#url.host} answers ${status}: ${said.slice(0, 300)}`;
    throw new GatewayRefusalError(status, gatewayErrorCode(said), message);
  }

  async #ask(verb: string, body: Buffer, signal: AbortSignal | undefined) {
    const response = await this.#send(verb, body, signal);
    const clockMs = clockOf(response.headers[CLOCK_HEADER]);
    if (clockMs !== undefined) this.#aheadMs = clockMs - Date.now();
    return { ...(await readAnswer(response)), clockMs };
  }

  /** @param file the body, if the session does not sign the body itself */
  async #send(
    verb: string,
    signed: Buffer,
    signal: AbortSignal | undefined,
    file?: { bytes: number; stream: Readable },
  ) {
    const credentials = this.#credentials();
    if (credentials === undefined) throw new Error('this agent has no session to sign the request with');
    const { ticket, key } = credentials;
    const path = `${this.#url.pathname.replace(/\/+$/, '')}/agent/batch/${verb}`;
    const stamp = { at: Date.now() + this.#aheadMs, nonce: randomBytes(12).toString('base64url') };
    const asked = { ...stamp, session: ticket.session, audience: this.#url.host, path: `/agent/batch/${verb}` };
    const signature = key.sign(batchRequestMessage(asked, signed, nodeCrypto));
    return request(new URL(path, this.#url), {
      method: 'POST',
      dispatcher: this.#dispatcher,
      headers: {
        ...(file === undefined
          ? { 'content-type': 'application/json' }
          : {
              'content-type': 'application/octet-stream',
              'content-length': String(file.bytes),
              [OUTPUT_HEADER]: toBase64url(signed),
            }),
        'x-otela-protocol': String(PROTOCOL_VERSION),
        'x-otela-ticket': toBase64url(ticket.bytes),
        [BATCH_SIGNATURE_HEADER]: writeBatchSignature(stamp, signature),
      },
      body: file?.stream ?? signed,
      ...(signal === undefined ? {} : { signal }),
    });
  }
}

interface Answer {
  status: number;
  text: Buffer;
}

/** @throws Error */
async function readAnswer({ statusCode, body }: Dispatcher.ResponseData): Promise<Answer> {
  const bytes = await readAtMost(body, CHUNK_MAX_BYTES);
  if (bytes === undefined) throw new Error('the gateway sent more bytes than one chunk');
  return { status: statusCode, text: Buffer.from(bytes.buffer) };
}

/** Passes bytes on. @throws Error if there are more */
function atMost(most: number) {
  return async function* (source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let bytes = 0;
    for await (const piece of source) {
      bytes += piece.length;
      if (bytes > most) throw new Error(`a file of more than ${most} bytes`);
      yield piece;
    }
  };
}

/** Milliseconds since 1970, from the gateway's clock header. */
function clockOf(header: string | string[] | undefined): number | undefined {
  return typeof header === 'string' && /^\d{1,15}$/.test(header) ? Number(header) : undefined;
}

function refOf({ batch, chunk, epoch }: GrantedLease) {
  return { batch, chunk, epoch };
}

/** @throws Error if the gateway's answer does not match the schema */
function parsed<T extends z.ZodType>(schema: T, answer: Buffer | undefined): z.infer<T> {
  try {
    return schema.parse(parseJson(String(answer)));
  } catch (cause) {
    throw new Error('this agent cannot parse the gateway’s response to a request for lines', { cause });
  }
}

/** False for a first 503: for a moment, a gateway does not know a session that just began. */
export function isWorthALogLine(error: unknown, earlierFailures: number): boolean {
  return earlierFailures > 0 || !(error instanceof GatewayRefusalError && error.status === 503);
}
