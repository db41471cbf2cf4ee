import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { createUsageMeter, type UsageMeter } from '../../shared/openai/usage-meter.ts';
import { isEventStreamType } from '../../shared/upstream/response.ts';
import type { ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import { NO_USAGE, type ReportedUsage } from '../../shared/wire/usage.ts';

/** An engine that keeps a stream open after its last word keeps its client waiting, for ever if it goes on with comments. */
const AFTER_LAST_MS = 2_000;

/** Endings that may come after the engine was asked and before it answered: it may have used tokens. */
const ASKED: ReadonlySet<ResetCode> = new Set<ResetCode>(['cancelled', 'engine_closed', 'first_byte_timeout']);

export type EngineAnswerEnd = { kind: 'end' } | { kind: 'reset'; code: ResetCode; message: string };
export const NORMAL_END: EngineAnswerEnd = { kind: 'end' };

interface AnswerHead {
  status: number;
  headers: HeaderList;
  /** The engine sent the answer's length, so the answer's end is known whatever the body says. */
  sized: boolean;
  dropUsage: boolean;
  promptBytes: number;
}

interface Outcome {
  ending: EngineAnswerEnd;
  /** Held back until now; goes on before the ending. */
  flush: readonly Uint8Array[];
  usage: ReportedUsage | undefined;
}

/** One answer of the engine, from its head: what of it goes on, how it ended, and what it used. */
export class EngineAnswer {
  readonly streams: boolean;
  readonly #status: number;
  readonly #sized: boolean;
  readonly #meter: UsageMeter;
  /** When the stream's last word came. */
  #lastAt: number | undefined;

  constructor(endpoint: Endpoint, { status, headers, sized, dropUsage, promptBytes }: AnswerHead) {
    const contentType = contentTypeOf(headers);
    this.streams = contentType !== undefined && isEventStreamType(contentType);
    this.#status = status;
    this.#sized = sized;
    this.#meter = createUsageMeter(endpoint, {
      streaming: this.streams,
      dropUsageEvent: dropUsage,
      promptBytes,
      status,
      ...(contentType === undefined ? {} : { contentType }),
    });
  }

  /** What of the chunk goes on now. */
  push(chunk: Uint8Array, now: number): Uint8Array[] {
    const pieces = this.#meter.push(chunk);
    if (this.#meter.saidLast) this.#lastAt ??= now;
    return pieces;
  }

  /** The last word came, and the engine keeps the stream open. */
  lingers(now: number): boolean {
    return this.#lastAt !== undefined && now - this.#lastAt >= AFTER_LAST_MS;
  }

  /** `broken`: what came cannot be believed, whatever its last word was. Call once. */
  end(said: EngineAnswerEnd, broken: boolean): Outcome {
    const { cut = false, aborted: givenUp = false, complete, flush, usage } = this.#meter.end();
    const ending = this.#endingFor(said, givenUp || (cut && !this.#sized), broken);
    const aborted = ending.kind === 'reset' && ending.code === 'cancelled';
    return { ending, flush, usage: { ...usage, complete: ending.kind === 'end' && complete, aborted } };
  }

  #endingFor(said: EngineAnswerEnd, cut: boolean, broken: boolean): EngineAnswerEnd {
    const isWhole = said.kind === 'reset' && said.code !== 'cancelled' && this.#lastAt !== undefined && !broken;
    if (isWhole) return NORMAL_END; // all of it came, though its connection broke or stayed open
    return cut && this.#status < 400 ? unlessWhole(said) : said;
  }
}

/** The end of a request that the engine gave no head of an answer to. */
export function failedOutcome(said: EngineAnswerEnd): Outcome {
  const mayHaveUsed = said.kind === 'reset' && ASKED.has(said.code);
  const usage = mayHaveUsed ? { ...NO_USAGE, estimated: true, aborted: said.code === 'cancelled' } : undefined;
  return { ending: said, flush: [], usage };
}

/** The body's media type. A compressed body cannot be read, so it counts as a stream of bytes. */
function contentTypeOf(headers: HeaderList): string | undefined {
  const value = (wanted: string) => headers.find(([name]) => name === wanted)?.[1];
  return value('content-encoding') === undefined ? value('content-type') : 'application/octet-stream';
}

/**
 * An answer without a length ends with its connection, even if the engine died in the middle (RFC 9112 §6.3). A proxy in between
 * makes such an end look like any other.
 */
function unlessWhole(ending: EngineAnswerEnd): EngineAnswerEnd {
  return ending.kind === 'end' ? { kind: 'reset', code: 'engine_closed', message: 'it ends in the middle' } : ending;
}
