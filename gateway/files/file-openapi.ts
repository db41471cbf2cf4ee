/**
 * Schemas of the requests and responses of `/v1/files` and `/v1/uploads`, for `/openapi.json`. Tests parse real
 * responses with them.
 */
import * as z from 'zod';
import { INPUT_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import type { RouteDescription } from '../http/route-description.ts';
import { FILE_MAX_BYTES, PURPOSES } from './openai-file.ts';

const seconds = z.int().min(0).meta({ description: 'Unix seconds.' });
/** Schema of an id in responses. */
const idOf = (kind: string) => z.string().meta({ examples: [`${kind}6f1c3f0e9b7a4d2c8e5f0a1b`] });

const fileSchema = z.strictObject({
  id: idOf('file-'),
  object: z.literal('file'),
  bytes: z.int().min(0),
  created_at: seconds,
  expires_at: seconds.optional(),
  filename: z.string().meta({ examples: ['claims.jsonl'] }),
  purpose: z.enum([...PURPOSES, 'batch_output']),
  status: z.literal('processed'),
});

const uploadSchema = z.strictObject({
  id: idOf('upload_'),
  object: z.literal('upload'),
  bytes: z.int().min(1),
  created_at: seconds,
  expires_at: seconds,
  filename: z.string(),
  purpose: z.enum(PURPOSES),
  status: z.enum(['pending', 'completed', 'cancelled', 'expired']),
  file: fileSchema.nullable(),
});

const uploadPartSchema = z.strictObject({
  id: idOf('part_'),
  object: z.literal('upload.part'),
  created_at: seconds,
  upload_id: z.string(),
});

/** Schema of a page of an OpenAI list. */
export function pageSchemaOf<T extends z.ZodType>(item: T) {
  const id = z.string().nullable();
  return z.strictObject({
    object: z.literal('list'),
    data: z.array(item),
    first_id: id,
    last_id: id,
    has_more: z.boolean(),
  });
}

/**
 * Schema of the query of a list.
 * @param most maximum items of a page
 * @param fallback default items of a page
 */
export function listQueryOf(most: number, fallback: number) {
  return z.object({
    limit: z.coerce.number().int().min(1).max(most).default(fallback),
    order: z.enum(['asc', 'desc']).default('desc'),
    after: z.string().optional().meta({ description: 'Id of the last item of the previous page.' }),
  });
}

const expiresAfter = {
  'expires_after[anchor]': z.literal('created_at').optional(),
  'expires_after[seconds]': z.coerce.number().int().min(3_600).max(2_592_000).optional(),
};
const binary = (description: string) => z.string().meta({ format: 'binary', description });

export const FILE_ROUTES: readonly RouteDescription[] = [
  {
    method: 'post',
    path: '/v1/files',
    summary: `Upload a file of at most ${FILE_MAX_BYTES} bytes, or ${INPUT_MAX_BYTES} bytes as the input of a batch. The form fields may have any order.`,
    form: z.object({
      file: binary('For a batch: JSON, one request per line.'),
      purpose: z.enum(PURPOSES),
      ...expiresAfter,
    }),
    answer: fileSchema,
  },
  {
    method: 'get',
    path: '/v1/files',
    summary: "List the files of the key's project, newest first.",
    query: listQueryOf(10_000, 10_000).extend({ purpose: z.string().optional() }),
    answer: pageSchemaOf(fileSchema),
  },
  { method: 'get', path: '/v1/files/{id}', summary: 'Return one file.', answer: fileSchema },
  {
    method: 'delete',
    path: '/v1/files/{id}',
    summary: 'Delete a file. 409: a batch reads it.',
    answer: z.strictObject({ id: z.string(), object: z.literal('file'), deleted: z.literal(true) }),
  },
  {
    method: 'get',
    path: '/v1/files/{id}/content',
    summary: 'Return the content of a file, or one `range` of it.',
    bytes: true,
  },
  {
    method: 'post',
    path: '/v1/uploads',
    summary:
      'Start to upload a file in parts, for proxies that do not accept large bodies. The upload expires after an hour.',
    body: z.object({
      filename: z.string().min(1).max(255),
      purpose: z.enum(PURPOSES),
      bytes: z.int().min(1).max(FILE_MAX_BYTES),
      mime_type: z.string().optional(),
    }),
    example: { filename: 'claims.jsonl', purpose: 'batch', bytes: 73_400_320, mime_type: 'application/jsonl' },
    answer: uploadSchema,
  },
  {
    method: 'post',
    path: '/v1/uploads/{id}/parts',
    summary: 'Upload one part of at most 64 MiB. Parts may be sent concurrently, in any order.',
    form: z.object({ data: binary('The bytes of this part.') }),
    answer: uploadPartSchema,
  },
  {
    method: 'post',
    path: '/v1/uploads/{id}/complete',
    summary: 'Create a file from the parts, in the order of part_ids.',
    body: z.object({
      part_ids: z.array(z.string()).min(1).max(1_000),
      md5: z.string().optional().meta({ description: 'MD5 of the whole file, in hex.' }),
    }),
    example: { part_ids: ['part_6f1c3f0e9b7a4d2c8e5f0a1b'] },
    answer: uploadSchema,
  },
  {
    method: 'post',
    path: '/v1/uploads/{id}/cancel',
    summary: 'Cancel an upload and delete its parts.',
    answer: uploadSchema,
  },
];
