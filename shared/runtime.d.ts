/**
 * The only web classes that shared/ may use: they have no side effects and are the same in workerd and Node.
 * Only tsconfig.shared reads this file; the other two configurations use the declarations of their runtime.
 */
declare class TextEncoder {
  encode(input?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, into: Uint8Array): { read: number; written: number };
}

declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  decode(input?: Uint8Array): string;
}

interface ReadableStreamDefaultController<T> {
  enqueue(chunk: T): void;
  close(): void;
  error(reason?: unknown): void;
}

interface ReadableStreamDefaultReader<T> {
  read(): Promise<{ done: false; value: T } | { done: true; value?: T | undefined }>;
  cancel(reason?: unknown): Promise<void>;
  releaseLock(): void;
}

interface ReadableStreamBYOBReader {
  read(
    into: Uint8Array<ArrayBuffer>,
  ): Promise<{ done: false; value: Uint8Array } | { done: true; value?: Uint8Array | undefined }>;
  cancel(reason?: unknown): Promise<void>;
  releaseLock(): void;
}

declare class ReadableStream<T> {
  constructor(
    source: {
      start?(controller: ReadableStreamDefaultController<T>): void;
      pull?(controller: ReadableStreamDefaultController<T>): void | Promise<void>;
      cancel?(reason?: unknown): void | Promise<void>;
    },
    strategy?: { highWaterMark?: number },
  );
  getReader(): ReadableStreamDefaultReader<T>;
  getReader(options: { mode: 'byob' }): ReadableStreamBYOBReader;
}

declare class AbortSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
}

declare class AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}
