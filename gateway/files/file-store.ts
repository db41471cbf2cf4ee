/** A file that the store has, whether or not the accounts know it. */
export interface StoredFile {
  id: string;
  /** Milliseconds since the epoch. */
  modifiedMs: number;
}

/**
 * Where the bytes of files are. `hosts/node` keeps them in a directory, or in a bucket, `hosts/worker` in R2. Names are ids that the gateway made; nothing of a
 * client's is part of one.
 */
export interface FileStore {
  /**
   * Stores a file whole, or not at all: a reader never sees a part of it.
   * @throws FileTooLarge above `maxBytes`; FileStoreError where the store cannot take it; what `content` throws
   */
  put(id: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }>;
  /** `length` bytes from `offset`; absent: all. Undefined: there is no such file. @throws FileStoreError */
  read(id: string, range?: { offset: number; length: number }): Promise<AsyncIterable<Uint8Array> | undefined>;
  /** Idempotent. @throws FileStoreError */
  delete(id: string): Promise<void>;
  /** Every file, in no order that callers may rely on. @throws FileStoreError */
  list(): AsyncIterable<StoredFile>;
  /** Deletes what `put` left unfinished and nothing was written to since `beforeMs`. @returns how many @throws FileStoreError */
  dropUnfinished(beforeMs: number): Promise<number>;
}

/** The store cannot be asked, has no room, or has less of a file than was stored. The same call may succeed later. */
export class FileStoreError extends Error {
  readonly code: 'full' | 'unavailable' | 'damaged';

  constructor(code: FileStoreError['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'FileStoreError';
    this.code = code;
  }
}

export class FileTooLarge extends Error {
  constructor(maxBytes: number) {
    super(`more than ${maxBytes} bytes`);
    this.name = 'FileTooLarge';
  }
}
