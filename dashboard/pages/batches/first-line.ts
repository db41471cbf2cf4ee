/**
 * Reads the endpoint and the model from the beginning of a file. The gateway checks every line; this only fills in a
 * form.
 */
import * as z from 'zod/mini';
import type { Batch } from '../../api/batches.ts';

/** Number of bytes that are read. A first line is rarely longer; if it is, the form is not filled in. */
const READ_BYTES = 64 * 1024;

export const FIRST_LINE_ENDPOINTS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/embeddings',
  '/v1/responses',
  '/v1/rerank',
  '/v1/score',
  '/v1/classify',
  '/v1/pooling',
  '/v1/moderations',
  '/v1/audio/transcriptions',
  '/v1/audio/translations',
  '/v1/otela/functions',
] as const satisfies Batch['endpoint'][];

const lineSchema = z.object({ url: z.enum(FIRST_LINE_ENDPOINTS), body: z.object({ model: z.string() }) });

/** Undefined if the file does not begin with a line of a batch. */
export async function firstLineOf(file: Blob): Promise<{ endpoint: Batch['endpoint']; model: string } | undefined> {
  const text = await file.slice(0, READ_BYTES).text();
  const line =
    text
      .replace(/^\uFEFF/, '')
      .trimStart()
      .split('\n', 1)[0] ?? '';
  try {
    const { url, body } = lineSchema.parse(JSON.parse(line));
    return { endpoint: url, model: body.model };
  } catch {
    return undefined;
  }
}
