/** Asks an engine for facts about itself. */
import { Agent } from 'undici';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';
import { waitClock } from '../../wait-clock.ts';
import type { EngineTarget } from '../engine-address.ts';
import { askEngine } from '../engine-request.ts';

/** Bounds of the timeout. During a prefill an engine's HTTP server may not answer for seconds. */
const ANSWER = { leastMs: 5_000, mostMs: 60_000 };
/** Maximum length of an answer. vLLM's `/metrics` has about 200 KiB, and Ollama's `/api/show` about 50 KiB. */
const ANSWER_MAX_BYTES = 4 * 1024 * 1024;

export class FactClient {
  readonly #target: EngineTarget;
  /** A separate connection, so that a slow answer delays no probe, and no proxy from the environment is used. */
  readonly #agent = new Agent({ connections: 1, pipelining: 1, connectTimeout: ANSWER.mostMs });
  readonly #answers = new AdaptiveTimeout(ANSWER);

  constructor(target: EngineTarget) {
    this.#target = target;
  }

  /**
   * Undefined if the engine does not have `path`, or its answer is too long. `body`: sends a POST.
   * @throws Error if the engine does not answer
   */
  async text(path: string, body?: object): Promise<string | undefined> {
    const { status, text } = await waitClock.call(this.#answers, (signal) =>
      askEngine(this.#target, path, { dispatcher: this.#agent, signal, maxBytes: ANSWER_MAX_BYTES, body }),
    );
    return status === 200 ? text : undefined;
  }

  /** Like `text`, parsed. Undefined also for an answer that is not JSON. */
  async json(path: string, body?: object): Promise<unknown> {
    const text = await this.text(path, body);
    return text === undefined ? undefined : tryParseJson(text);
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}
