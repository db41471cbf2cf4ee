import { isEventStreamType } from '../../shared/attempts/started-response.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { UsageMeter } from '../../shared/openai/token-usage.ts';
import { createUsageMeter } from '../../shared/openai/usage-meter.ts';
import type { ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import { NO_USAGE, type ReportedUsage } from '../../shared/wire/reported-usage.ts';

/**
 * If the engine keeps a stream open for this long after its last event, the agent ends the stream. Otherwise the client
 * would keep waiting, and would wait forever if the engine sends comments.
 */
const AFTER_LAST_MS = 2_000;

/**
 * Codes with which an attempt may end after the engine has received the request and before it has answered. The engine
 * may have used tokens.
 */
const ENGINE_MAY_HAVE_WORKED: ReadonlySet<ResetCode> = new Set<ResetCode>([
  'cancelled',
  'engine_closed',
  'first_byte_timeout',
]);

export type EngineAnswerEnd = { kind: 'end' } | { kind: 'reset'; code: ResetCode; message: string };
export const NORMAL_END: EngineAnswerEnd = { kind: 'end' };

interface AnswerHead {
  status: number;
  headers: HeaderList;
  /** True if the response has a content-length. Its end is then known without parsing the body. */
  sized: boolean;
  dropUsage: boolean;
  promptBytes: number;
  /** Returns the milliseconds of audio in the request's body, as far as it was read. */
  uploadedMs?: () => number;
}

interface Outcome {
  ending: EngineAnswerEnd;
  /** Bytes of the response that `push` held back. They must be sent before the ending. */
  flush: readonly Uint8Array[];
  usage: ReportedUsage | undefined;
}

/**
 * Handles one response of the engine after its head: decides which bytes are passed on, how the response ended, and how
 * much it used.
 */
export class EngineAnswer {
  readonly streams: boolean;
  readonly #status: number;
  readonly #sized: boolean;
  readonly #meter: UsageMeter;
  /** When the stream's last event arrived. */
  #lastAt: number | undefined;

  constructor(endpoint: Endpoint, { status, headers, sized, dropUsage, promptBytes, uploadedMs }: AnswerHead) {
    const contentType = contentTypeOf(headers);
    this.streams = contentType !== undefined && isEventStreamType(contentType);
    this.#status = status;
    this.#sized = sized;
    this.#meter = createUsageMeter(endpoint, {
      streaming: this.streams,
      dropUsageEvent: dropUsage,
      promptBytes,
      ...(uploadedMs && { uploadedMs }),
      status,
      ...(contentType === undefined ? {} : { contentType }),
    });
  }

  /** Returns the bytes of the chunk that can be passed on now. */
  push(chunk: Uint8Array, now: number): Uint8Array[] {
    const pieces = this.#meter.push(chunk);
    if (this.#meter.sawLastEvent) this.#lastAt ??= now;
    return pieces;
  }

  /** True if the stream's last event arrived at least AFTER_LAST_MS ago, and the engine still keeps the stream open. */
  lingers(now: number): boolean {
    return this.#lastAt !== undefined && now - this.#lastAt >= AFTER_LAST_MS;
  }

  /**
   * Call once, at the end of the response.
   * @param broken true if the bytes cannot be trusted, even if the stream's last event arrived
   */
  end(engineEnd: EngineAnswerEnd, broken: boolean): Outcome {
    const { cut = false, aborted: givenUp = false, complete, flush, usage } = this.#meter.end();
    const ending = this.#endingFor(engineEnd, givenUp || (cut && !this.#sized), broken);
    const aborted = ending.kind === 'reset' && ending.code === 'cancelled';
    return { ending, flush, usage: { ...usage, complete: ending.kind === 'end' && complete, aborted } };
  }

  #endingFor(engineEnd: EngineAnswerEnd, cut: boolean, broken: boolean): EngineAnswerEnd {
    const isWhole =
      engineEnd.kind === 'reset' && engineEnd.code !== 'cancelled' && this.#lastAt !== undefined && !broken;
    if (isWhole) return NORMAL_END; // the response is complete, although its connection broke or stayed open
    return cut && this.#status < 400 ? unlessWhole(engineEnd) : engineEnd;
  }
}

/** The outcome of a request for which the engine sent no response head. */
export function failedOutcome(engineEnd: EngineAnswerEnd): Outcome {
  const mayHaveUsed = engineEnd.kind === 'reset' && ENGINE_MAY_HAVE_WORKED.has(engineEnd.code);
  const usage = mayHaveUsed ? { ...NO_USAGE, estimated: true, aborted: engineEnd.code === 'cancelled' } : undefined;
  return { ending: engineEnd, flush: [], usage };
}

/** The body's media type. A compressed body cannot be parsed, so it counts as bytes. */
function contentTypeOf(headers: HeaderList): string | undefined {
  const value = (wanted: string) => headers.find(([name]) => name === wanted)?.[1];
  return value('content-encoding') === undefined ? value('content-type') : 'application/octet-stream';
}

/**
 * Turns the normal end of a response that looks incomplete into an error. A response without a content-length ends when
 * its connection closes (RFC 9112 §6.3), and behind a proxy the connection also closes normally if the engine died.
 */
function unlessWhole(ending: EngineAnswerEnd): EngineAnswerEnd {
  return ending.kind === 'end'
    ? { kind: 'reset', code: 'engine_closed', message: 'the engine ended its response early' }
    : ending;
}
