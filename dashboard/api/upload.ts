/**
 * Uploads a local file to the gateway in parts. A file of any size is never in memory as a whole, and a lost part is
 * sent again.
 */
import * as z from 'zod/mini';
import { changeGateway, Problem, send } from './client.ts';

/**
 * Size of a part: small enough for a bad connection and for proxies that refuse large bodies. At most 1,000 parts are
 * allowed; 512 MB need 128.
 */
const PART_BYTES = 4 * 1024 * 1024;
const ATTEMPTS = 4;
const RETRY_MS = 1_000;

const madeSchema = z.object({ id: z.string() });
const doneSchema = z.object({ file: z.object({ id: z.string() }) });

interface UploadOptions {
  purpose: 'batch' | 'user_data';
  /** Bytes that the gateway has received. */
  onProgress: (bytes: number) => void;
  signal: AbortSignal;
}

/** @returns the file's id. @throws Problem; AbortError. If it throws, the uploaded parts are deleted. */
export async function uploadFile(file: File, { purpose, onProgress, signal }: UploadOptions): Promise<string> {
  const declared = { filename: file.name, purpose, bytes: file.size, mime_type: 'application/jsonl' };
  const upload = await changeGateway(madeSchema, 'POST', '/v1/uploads', declared);
  const path = `/v1/uploads/${upload.id}`;
  try {
    const parts: string[] = [];
    for (let at = 0; at < file.size; at += PART_BYTES) {
      const end = Math.min(file.size, at + PART_BYTES);
      parts.push(await sendPart(`${path}/parts`, file.slice(at, end), signal));
      onProgress(end);
    }
    signal.throwIfAborted();
    const { file: stored } = await changeGateway(doneSchema, 'POST', `${path}/complete`, { part_ids: parts });
    return stored.id;
  } catch (error) {
    await send(`${path}/cancel`, { method: 'POST' }).catch(() => {});
    throw error;
  }
}

async function sendPart(path: string, part: Blob, signal: AbortSignal): Promise<string> {
  for (let n = 1; ; n++) {
    const body = new FormData();
    body.append('data', part, 'part');
    try {
      const response = await send(path, { method: 'POST', body, signal });
      return madeSchema.parse(await response.json()).id;
    } catch (error) {
      if (n === ATTEMPTS || !isWorthTrying(error)) throw error;
      await pause(n * RETRY_MS, signal);
    }
  }
}

const isWorthTrying = (error: unknown) =>
  error instanceof Problem && (error.status === 0 || error.status === 429 || error.status >= 500);

/** @throws AbortError */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal.addEventListener('abort', stop, { once: true });
  });
}
