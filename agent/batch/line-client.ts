import { FormData, Pool } from 'undici';
import { audioForm } from '../../shared/batch/audio-line.ts';
import { RESULT_MAX_BYTES } from '../../shared/batch/line-results.ts';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { enginePathAt, findEndpoint } from '../../shared/openai/endpoints.ts';
import { isAborted } from '../../shared/openai/token-usage.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { parseJson, tryParseJson } from '../../shared/text/parse-json.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import { waitClock } from '../wait-clock.ts';

/** uvicorn closes idle connections after 5 s. This client closes them before that. */
const KEEP_ALIVE_MS = 4_000;
/** An engine with counters that has computed nothing for this long has lost its lines. */
const SILENT_MS = 15 * 60_000;
/**
 * Time limit of a line at an engine without counters. It is long, because the engine may compute one long response, or
 * other requests first.
 */
const NO_COUNTERS_TIMEOUT_MS = 60 * 60_000;
/** Maximum duration of a line even if the engine computes. It ends a line that the engine forgot. */
const LINE_MAX_MS = 12 * 60 * 60_000;
const POLL_MS = 30_000;

export type LineAnswer =
  | { kind: 'answered'; status: number; body: string }
  /** The endpoint is unknown, or the engine's answer is invalid or too late. Another attempt may succeed. */
  | { kind: 'failed'; why: string }
  /** The engine cannot be reached, so the line did not cause the failure. */
  | { kind: 'gone'; why: string }
  | { kind: 'aborted' };

/** Runs lines at one engine. */
export class LineClient {
  readonly target: EngineTarget;
  readonly #pool: Pool;
  readonly #computedAt: () => number | undefined;

  /**
   * @param computedAt when the engine last showed that it computes, by `performance.now()`; undefined if it has no
   * counters
   */
  constructor(target: EngineTarget, computedAt: () => number | undefined) {
    this.target = target;
    this.#computedAt = computedAt;
    this.#pool = new Pool(target.origin, {
      pipelining: 1,
      keepAliveTimeout: KEEP_ALIVE_MS,
      // No HTTP timeouts: a non-streaming response has no bytes until it is complete, so `#watch` decides.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  /** @param body the request as JSON @param path path of the endpoint, such as `/v1/chat/completions` */
  async run(path: string, body: string, requestId: string, signal: AbortSignal): Promise<LineAnswer> {
    const endpoint = findEndpoint('POST', path);
    if (endpoint === undefined || 'methodNotAllowed' in endpoint)
      return { kind: 'failed', why: `there is no endpoint ${path}` };
    const { pathPrefix, engine, key } = this.target;
    const lost = new AbortController();
    const stop = this.#watch(() => lost.abort());
    try {
      const response = await this.#pool.request({
        method: 'POST',
        path: pathPrefix + enginePathAt(endpoint, engine),
        headers: {
          ...(endpoint.body === 'json' && { 'content-type': 'application/json' }),
          'accept-encoding': 'identity',
          'x-request-id': requestId,
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        body: endpoint.body === 'json' ? body : formOf(body),
        signal: AbortSignal.any([signal, lost.signal]),
      });
      const text = await readTextAtMost(response.body, RESULT_MAX_BYTES);
      if (text === undefined) return { kind: 'failed', why: `the response is larger than ${RESULT_MAX_BYTES} bytes` };
      const answer = response.statusCode < 400 ? tryParseJson(text) : {};
      if (answer === undefined) return { kind: 'failed', why: 'the response is not JSON, or is nested too deeply' };
      if (isAborted(answer)) return { kind: 'failed', why: 'the engine aborted the response' };
      return { kind: 'answered', status: response.statusCode, body: text };
    } catch (error) {
      if (signal.aborted) return { kind: 'aborted' };
      if (lost.signal.aborted) return { kind: 'failed', why: 'the engine did not complete this line in time' };
      const why = errorText(error);
      return isFailure(error) ? { kind: 'failed', why } : { kind: 'gone', why };
    } finally {
      stop();
    }
  }

  /**
   * Watches a line that begins now. Calls `onLost` if the engine has lost the line, so that no answer will arrive.
   * Returns a function that ends the watch.
   */
  #watch(onLost: () => void): () => void {
    const begunAt = performance.now();
    let passed = 0;
    let stop = () => {};
    const look = () => {
      stop = waitClock.after(POLL_MS, () => {
        passed += POLL_MS;
        const computedAt = this.#computedAt();
        const silent =
          computedAt === undefined ? passed : Math.min(passed, performance.now() - Math.max(begunAt, computedAt));
        const most = computedAt === undefined ? NO_COUNTERS_TIMEOUT_MS : SILENT_MS;
        if (silent >= most || passed >= LINE_MAX_MS) onLost();
        else look();
      });
    };
    look();
    return () => stop();
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** The form that an engine gets for a line with audio. @throws Error if no gateway has checked the line */
function formOf(body: string): FormData {
  const { audio, fields } = audioForm(parseJson(body) as Record<string, unknown>);
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, value);
  // Engines choose the decoder by the extension of the name.
  const name = `audio.${audio.type.slice(audio.type.indexOf('/') + 1).replace(/^x-/, '')}`;
  form.append('file', new Blob([Buffer.from(audio.base64, 'base64')], { type: audio.type }), name);
  return form;
}

/** True if a program answers at the engine's address, but not in HTTP. */
function isFailure(error: unknown): boolean {
  return error instanceof Error && error.name === 'HTTPParserError';
}
