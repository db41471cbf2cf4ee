import { owned } from '../wire/owned.ts';

/** Bytes of one read handed to the Worker at most: a reader that fell behind gets what waits in few pieces. */
const MERGE_BYTES = 64 * 1024;

/**
 * The answer on its way to the Worker: bytes wait here until they are pulled (workerd has no backpressure on WebSockets, the
 * stream's credit bounds what can wait). `onPulled` gets the bytes that went on; `onOver` is called once, when the last of them
 * did or when nobody reads on.
 */
export class AnswerBody {
  readonly #onPulled: (bytes: number) => void;
  readonly #onOver: (cancelled: boolean) => void;
  readonly #onHungry: () => void;
  #waiting: Uint8Array[] = [];
  #ended = false;
  #failure: string | undefined;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** The pull that found nothing. */
  #hungry: (() => void) | undefined;

  constructor(onPulled: (bytes: number) => void, onOver: (cancelled: boolean) => void, onHungry: () => void) {
    this.#onPulled = onPulled;
    this.#onOver = onOver;
    this.#onHungry = onHungry;
  }

  /** The answer as a stream. Made on demand: most answers are small and need none. */
  open(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
          if (this.#failure !== undefined && this.#waiting.length === 0) controller.error(new Error(this.#failure));
        },
        pull: () => this.#pull(),
        cancel: () => this.#onOver(true),
      },
      { highWaterMark: 0 },
    );
  }

  /** All of the answer that waits, when it is already complete: it needs no stream. */
  takeWhole(): Uint8Array | undefined {
    if (!this.#ended) return undefined;
    const bytes = concat(this.#waiting);
    this.#waiting = [];
    this.#onPulled(bytes.length);
    this.#onOver(false);
    return bytes;
  }

  /** A reader waits for bytes. */
  get hungry(): boolean {
    return this.#hungry !== undefined;
  }

  push(bytes: Uint8Array): void {
    this.#waiting.push(this.hungry ? bytes : owned(bytes));
    this.#feed();
  }

  end(): void {
    this.#ended = true;
    this.#feed();
  }

  /**
   * As `fail`, once what came was read; false where there is nothing to wait for. A reader that does not ask for more has the
   * last piece still in its hands: workerd throws that away where the error overtakes it.
   */
  breakOff(reason: string): boolean {
    if (this.#waiting.length === 0 && (this.hungry || this.#controller === undefined)) return false;
    this.#failure = reason;
    return true;
  }

  /** Throws away what waits: it can be had again from the agent. */
  drop(): void {
    this.#waiting = [];
    this.#ended = false;
  }

  /** The reader learns only that the stream broke; it asks why when it claims the rest. */
  fail(reason: string): void {
    this.#waiting = [];
    this.#failure = reason;
    this.#settle((controller) => controller.error(new Error(reason)));
  }

  #feed(): void {
    if (this.#hungry !== undefined) this.#deliver();
  }

  #pull(): Promise<void> | undefined {
    if (this.#waiting.length > 0 || this.#ended || this.#failure !== undefined) {
      this.#deliver();
      return undefined;
    }
    this.#onHungry();
    return new Promise((resolve) => {
      this.#hungry = resolve;
    });
  }

  #deliver(): void {
    this.#settle((controller) => {
      const bytes = this.#next();
      if (bytes !== undefined) {
        controller.enqueue(bytes);
        this.#onPulled(bytes.length);
      } else {
        if (this.#failure === undefined) controller.close();
        else controller.error(new Error(this.#failure));
        this.#onOver(false);
      }
    });
  }

  #settle(act: (controller: ReadableStreamDefaultController<Uint8Array>) => void): void {
    const hungry = this.#hungry;
    this.#hungry = undefined;
    try {
      if (this.#controller !== undefined) act(this.#controller);
    } catch {
      // The reader cancelled between its pull and now: `cancel` has told.
    }
    hungry?.();
  }

  #next(): Uint8Array | undefined {
    const first = this.#waiting.shift();
    if (first === undefined) return undefined;
    let length = first.length;
    let count = 0;
    for (const chunk of this.#waiting) {
      if (length + chunk.length > MERGE_BYTES) break;
      length += chunk.length;
      count++;
    }
    if (count === 0) return first;
    return concat([first, ...this.#waiting.splice(0, count)]);
  }
}

function concat(chunks: Uint8Array[]): Uint8Array {
  if (chunks.length === 1 && chunks[0] !== undefined) return chunks[0];
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
