import { concatOrSame } from '../collections/concat.ts';
import { copyView } from '../wire/copy-view.ts';

/** Maximum size to which small waiting pieces are joined, so that a slow sink gets them in fewer pieces. */
export const PIECE_MAX_BYTES = 64 * 1024;

/** Receives an answer's bytes as they arrive, while `wantsData` is true. */
export interface ByteSink {
  /** True if the sink accepts the next bytes or the end. */
  readonly wantsData: boolean;
  /** `bytes` may be part of a larger buffer; the sink must copy bytes that it keeps. */
  take(bytes: Uint8Array): void;
  end(): void;
  /** The answer broke off; `reason` is a failure code. Called even if the sink wants no data. */
  fail(reason: string): void;
}

/**
 * Buffers the answer on its way to the reader. Bytes wait here until the reader takes them, because workerd has no
 * backpressure on WebSockets; the stream's credit limits how many wait. `onPulled` receives the number of bytes taken.
 * `onOver` is called once, when the last byte was taken or the reader stops.
 */
export class ResponseBody {
  readonly #onPulled: (bytes: number) => void;
  readonly #onOver: (cancelled: boolean) => void;
  readonly #onHungry: () => void;
  #waiting: Uint8Array[] = [];
  #ended = false;
  #failure: string | undefined;
  #taker: ByteSink | undefined;

  constructor(onPulled: (bytes: number) => void, onOver: (cancelled: boolean) => void, onHungry: () => void) {
    this.#onPulled = onPulled;
    this.#onOver = onOver;
    this.#onHungry = onHungry;
  }

  /** Returns the answer as a stream, which is created only on demand because most answers are small and need none. */
  open(): ReadableStream<Uint8Array> {
    const taker = new StreamTaker(
      () => this.refill(),
      () => this.#onOver(true),
    );
    this.#taker = taker;
    return taker.stream;
  }

  /**
   * Directs the answer to `taker`; the previous sink receives no more bytes. The sink calls `refill` when it wants data
   * again.
   */
  pipeTo(taker: ByteSink): void {
    this.#taker = taker;
    this.refill();
  }

  /** Returns the whole answer if it is already complete, so that no stream is needed. */
  takeWhole(): Uint8Array | undefined {
    if (!this.#ended) return undefined;
    const bytes = concatOrSame(this.#waiting);
    this.#waiting = [];
    this.#onPulled(bytes.length);
    this.#onOver(false);
    return bytes;
  }

  /** True if a reader waits for bytes. */
  get wantsData(): boolean {
    return this.#taker?.wantsData ?? false;
  }

  push(bytes: Uint8Array): void {
    this.#waiting.push(this.wantsData ? bytes : copyView(bytes));
    this.refill();
  }

  end(): void {
    this.#ended = true;
    this.refill();
  }

  /**
   * Like `fail`, but the reader first gets the received bytes. Returns false, and does nothing, if there is no such
   * byte left to take. A reader that does not pull may still have the last piece in its stream, and workerd would
   * discard that piece if the error arrived first.
   */
  breakOff(reason: string): boolean {
    if (this.#waiting.length === 0 && (this.wantsData || this.#taker === undefined)) return false;
    this.#failure = reason;
    return true;
  }

  /** Discards the waiting bytes, which the agent can send again. */
  drop(): void {
    this.#waiting = [];
    this.#ended = false;
  }

  /**
   * Ends the stream with an error. The reader only sees that the stream broke, and gets the reason when it claims the
   * rest.
   */
  fail(reason: string): void {
    this.#waiting = [];
    this.#failure = reason;
    this.#taker?.fail(reason);
  }

  /** Passes waiting bytes to the sink while it wants data. */
  refill(): void {
    for (let taker = this.#taker; taker?.wantsData; taker = this.#taker) {
      const bytes = this.#next();
      if (bytes !== undefined) {
        taker.take(bytes);
        this.#onPulled(bytes.length);
      } else if (this.#ended || this.#failure !== undefined) {
        if (this.#failure === undefined) taker.end();
        else taker.fail(this.#failure);
        return this.#onOver(false);
      } else return this.#onHungry();
    }
  }

  #next(): Uint8Array | undefined {
    const first = this.#waiting.shift();
    if (first === undefined) return undefined;
    let length = first.length;
    let count = 0;
    for (const chunk of this.#waiting) {
      if (length + chunk.length > PIECE_MAX_BYTES) break;
      length += chunk.length;
      count++;
    }
    if (count === 0) return first;
    return concatOrSame([first, ...this.#waiting.splice(0, count)]);
  }
}

/** A sink that is hungry while its stream's reader waits for bytes. */
class StreamTaker implements ByteSink {
  readonly stream: ReadableStream<Uint8Array>;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #asked = false;
  #onFed: (() => void) | undefined;

  constructor(refill: () => void, cancelled: () => void) {
    this.stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => {
          this.#asked = true;
          refill();
          if (!this.#asked) return undefined;
          return new Promise<void>((resolve) => {
            this.#onFed = resolve;
          });
        },
        cancel: cancelled,
      },
      { highWaterMark: 0 },
    );
  }

  get wantsData(): boolean {
    return this.#asked;
  }

  take(bytes: Uint8Array): void {
    this.#settle((controller) => controller.enqueue(bytes));
  }

  end(): void {
    this.#settle((controller) => controller.close());
  }

  fail(reason: string): void {
    this.#settle((controller) => controller.error(new Error(reason)));
  }

  #settle(act: (controller: ReadableStreamDefaultController<Uint8Array>) => void): void {
    const onFed = this.#onFed;
    this.#onFed = undefined;
    this.#asked = false;
    try {
      if (this.#controller !== undefined) act(this.#controller);
    } catch {
      // The reader cancelled after its pull, and `cancel` has reported that already.
    }
    onFed?.();
  }
}
