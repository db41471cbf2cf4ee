/** A file in the store. The database may or may not have a row for it. */
export interface StoredFile {
  id: string;
  /** Time of the last write; milliseconds since the epoch. */
  modifiedMs: number;
}

/**
 * Storage of the contents of files. `hosts/node` uses a directory or a bucket, `hosts/worker` uses R2. Names are ids
 * that the gateway created; no client chooses them.
 */
export interface FileStore {
  /**
   * Stores a file completely or not at all, so that a reader never sees a part of it.
   * @throws FileTooLarge above `maxBytes`; FileStoreError if the store cannot accept it; errors of `content`
   */
  put(id: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }>;
  /** Reads a range of a file; without `range`, all of it. Undefined: there is no such file. @throws FileStoreError */
  read(id: string, range?: { offset: number; length: number }): Promise<AsyncIterable<Uint8Array> | undefined>;
  /** Deletes a file. Idempotent. @throws FileStoreError */
  delete(id: string): Promise<void>;
  /** Yields every file, in an unspecified order. @throws FileStoreError */
  list(): AsyncIterable<StoredFile>;
  /**
   * Deletes files that `put` left unfinished and that were not written since `beforeMs`.
   * @returns how many
   * @throws FileStoreError
   */
  dropUnfinished(beforeMs: number): Promise<number>;
}

/** The store is unavailable or full, or has lost part of a file. The same call may succeed later. */
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
