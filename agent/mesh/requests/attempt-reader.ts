import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import type { ResultOf } from '../../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import type { ResponseStream } from '../../../shared/attempts/started-response.ts';

/** One attempt at another agent (or at our own engine), as its caller reads it. */
export class AttemptReader {
  readonly #outbound: OutboundAttempt;
  readonly #result: Promise<ResultOf<'whole' | 'stream' | 'failure'>>;
  #whole: Uint8Array | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(outbound: OutboundAttempt) {
    this.#outbound = outbound;
    this.#result = new Promise((resolve) => outbound.attachCaller(resolve));
  }

  /** Resolves with the engine's response. @throws AttemptError if no response head arrives */
  async open(): Promise<ResponseStream> {
    const result = await this.#result;
    if (result.kind === 'failure') throw new AttemptError(result.code, result.message);
    if (result.kind === 'whole') this.#whole = result.bytes;
    else this.#reader = result.open().getReader();
    const { status, head } = result;
    return { status, head, read: () => this.#read(), cancel: () => this.cancel() };
  }

  /** Unread bytes stay at the node, except for one window. */
  async #read(): Promise<Uint8Array | undefined> {
    const whole = this.#whole;
    this.#whole = undefined;
    if (whole !== undefined) return whole.length > 0 ? whole : undefined;
    if (this.#reader === undefined) return undefined;
    try {
      const { done, value } = await this.#reader.read();
      return done ? undefined : value;
    } catch {
      throw new AttemptError(this.#outbound.failure ?? 'lost', 'the response broke off');
    }
  }

  /** Cancels the engine's work. No effect after the end. Idempotent. */
  cancel(): void {
    this.#outbound.cancel();
  }
}
