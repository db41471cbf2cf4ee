/** Access to the gateway's file store, and the errors for clients if the store fails. */
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { type FileStore, FileStoreError, FileTooLarge } from './file-store.ts';

/** @throws ApiError 503 if this gateway has no file store */
export function storeOf({ FILES }: Env): FileStore {
  if (FILES !== undefined) return FILES;
  throw new ApiError('server_is_overloaded', 'This gateway has no file store: its operator has not configured one.');
}

/** Messages for users if the store fails; details are in the operator's log. */
export const STORE_MESSAGES: Readonly<Record<FileStoreError['code'], string>> = {
  full: 'The file store is full.',
  unavailable: 'The file store cannot be reached now.',
  damaged: 'The file store has lost a part of this file.',
};

/** Calls the store, and converts its errors to errors for clients. @throws ApiError 413, 503 */
export async function withStoreErrors<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    if (cause instanceof FileTooLarge)
      throw new ApiError('request_too_large', `The file is larger than allowed: ${cause.message}.`, {
        param: 'file',
        cause,
      });
    if (cause instanceof FileStoreError) {
      throw new ApiError('server_is_overloaded', STORE_MESSAGES[cause.code], { cause });
    }
    throw cause;
  }
}

export function toReadableStream(content: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const pieces = content[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return?.();
    },
  });
}
