import { Pool } from 'undici';
import { RESULT_MAX_BYTES } from '../../shared/batch/results.ts';
import { enginePathAt, findEndpoint } from '../../shared/openai/endpoints.ts';
import { isAborted } from '../../shared/openai/usage.ts';
import { jsonOf } from '../../shared/text/json.ts';
import type { EngineTarget } from '../engine/address.ts';

/** uvicorn closes idle connections after 5 s: leave before it does. */
const KEEP_ALIVE_MS = 4_000;
/** An engine that answers nothing for so long on one line has lost it. */
const LINE_MS = 900_000;

export type LineAnswer =
  | { kind: 'answered'; status: number; body: string }
  /** The engine answered what is no answer, or too late: another attempt may do better. */
  | { kind: 'failed'; why: string }
  /** The engine is not there: the line was not at fault. */
  | { kind: 'gone'; why: string }
  | { kind: 'aborted' };

/** Runs lines at one engine. */
export class LineClient {
  readonly target: EngineTarget;
  readonly #pool: Pool;

  constructor(target: EngineTarget) {
    this.target = target;
    this.#pool = new Pool(target.origin, {
      pipelining: 1,
      keepAliveTimeout: KEEP_ALIVE_MS,
      headersTimeout: LINE_MS,
      bodyTimeout: LINE_MS,
    });
  }

  /** @param body JSON @param path of the endpoint, e.g. `/v1/chat/completions` */
  async run(path: string, body: string, requestId: string, signal: AbortSignal): Promise<LineAnswer> {
    const endpoint = findEndpoint('POST', path);
    if (endpoint === undefined || 'methodNotAllowed' in endpoint) return { kind: 'failed', why: `no endpoint ${path}` };
    const { pathPrefix, engine, key } = this.target;
    try {
      const response = await this.#pool.request({
        method: 'POST',
        path: pathPrefix + enginePathAt(endpoint, engine),
        headers: {
          'content-type': 'application/json',
          'accept-encoding': 'identity',
          'x-request-id': requestId,
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        body,
        signal,
      });
      const text = await textOf(response.body);
      if (text === undefined) return { kind: 'failed', why: `the answer has more than ${RESULT_MAX_BYTES} bytes` };
      const answer = response.statusCode < 400 ? jsonOf(text) : {};
      if (answer === undefined) return { kind: 'failed', why: 'the answer is no JSON, or is nested too deeply' };
      if (isAborted(answer)) return { kind: 'failed', why: 'the engine gave the answer up' };
      return { kind: 'answered', status: response.statusCode, body: text };
    } catch (error) {
      if (signal.aborted) return { kind: 'aborted' };
      const why = error instanceof Error ? error.message : String(error);
      return isFailure(error) ? { kind: 'failed', why } : { kind: 'gone', why };
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }
}

const FAILURES: readonly string[] = ['HeadersTimeoutError', 'BodyTimeoutError', 'HTTPParserError'];

/** It is there, and answers too late or what is no HTTP. */
function isFailure(error: unknown): boolean {
  return error instanceof Error && FAILURES.includes(error.name);
}

/** Undefined: longer than a result may be. */
async function textOf(body: AsyncIterable<Buffer>): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > RESULT_MAX_BYTES) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}
