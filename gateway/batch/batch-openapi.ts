/**
 * Schemas of the requests and responses of `/v1/batches`, for `/openapi.json`. Tests parse real responses with them.
 */
import * as z from 'zod';
import { BATCH_ENDPOINTS } from '../../shared/batch/batch-line.ts';
import { BATCH_STATUSES } from '../../shared/batch/batch-status.ts';
import { SECRET_NAME_RULE } from '../../shared/batch/function-secret.ts';
import { AFTER_MAX } from '../../shared/batch/line-references.ts';
import { listQueryOf, pageSchemaOf } from '../files/file-openapi.ts';
import type { RouteDescription } from '../http/route-description.ts';
import { secretBody } from './secret-routes.ts';

const count = z.int().min(0);
const at = z.int().min(0).nullable().meta({ description: 'Unix seconds; null: this has not happened.' });

const errorSchema = z.strictObject({
  code: z.string().meta({ examples: ['invalid_json_line'] }),
  message: z.string(),
  param: z.string().nullable(),
  line: z.int().min(1).nullable().meta({ description: 'Line number in the input file, from 1.' }),
});

const completionWindow = z
  .string()
  .regex(/^[1-9]\d{0,2}[hd]$/)
  .meta({ description: 'Time in which the batch must end: 1h to 720h, or 1d to 30d.', examples: ['24h', '7d'] });

const progressSchema = z.strictObject({
  paused: z.boolean(),
  leased: count.meta({ description: 'Lines that nodes are running.' }),
  requeued: count.meta({ description: 'Lines that returned to the queue because their node was lost.' }),
  nodes: count,
  lines_per_s: z.number().min(0),
  tokens_per_s: z.number().min(0),
  wasted_tokens: count.meta({ description: 'Tokens of duplicate responses, which were dropped.' }),
  gpu_seconds: z
    .number()
    .min(0)
    .meta({ description: 'GPU-seconds of load() and of calls, for batches with a function.' }),
  estimated_end: at.meta({ description: 'Unix seconds; null: unknown.' }),
  owner: z
    .string()
    .optional()
    .meta({
      description: 'project:ID, user:ID or key:ID. Only operators see it, and only for batches of other owners.',
      examples: ['project:p1'],
    }),
  waiting_for: z
    .string()
    .nullable()
    .meta({ description: 'Why the batch does not progress now; null: it progresses, or only waits for nodes.' }),
  after: z
    .array(z.string())
    .optional()
    .meta({ description: 'Batches with results that lines of this batch need; absent: none.' }),
  contexts: z
    .strictObject({ ready: count, loading: count, stored: count })
    .nullable()
    // Absent in batches that ended before this member existed.
    .optional()
    .meta({
      description:
        'Nodes on which the function of the batch is loaded, is being loaded, or has its code stored. Null: the batch has no function, has ended, or no node was asked.',
    }),
});

const batchSchema = z.strictObject({
  id: z.string().meta({ examples: ['batch_6f1c3f0e9b7a4d2c8e5f0a1b'] }),
  object: z.literal('batch'),
  endpoint: z.enum(BATCH_ENDPOINTS),
  model: z.string().nullable(),
  errors: z.strictObject({ object: z.literal('list'), data: z.array(errorSchema) }).nullable(),
  input_file_id: z.string(),
  completion_window: completionWindow,
  status: z.enum(BATCH_STATUSES),
  output_file_id: z.string().nullable().meta({ description: 'File of the lines that succeeded; null: there is none.' }),
  error_file_id: z.string().nullable().meta({ description: 'File of all other lines; null: there is none.' }),
  created_at: z.int().min(0),
  in_progress_at: at,
  expires_at: z.int().min(0),
  finalizing_at: at,
  completed_at: at,
  failed_at: at,
  expired_at: at,
  cancelling_at: at,
  cancelled_at: at,
  request_counts: z.strictObject({ total: count, completed: count, failed: count }),
  usage: z.strictObject({
    input_tokens: count,
    input_tokens_details: z.strictObject({ cached_tokens: count }),
    output_tokens: count,
    output_tokens_details: z.strictObject({ reasoning_tokens: count }),
    total_tokens: count,
  }),
  metadata: z.record(z.string(), z.string()).nullable(),
  x_otela: progressSchema.meta({ description: "Members of this gateway, in addition to OpenAI's members." }),
});

const resultSchema = z.strictObject({
  id: z.string(),
  custom_id: z.string().nullable(),
  response: z
    .strictObject({ status_code: z.int().min(200).max(599), request_id: z.string(), body: z.unknown() })
    .nullable(),
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
});

const secretSchema = z.strictObject({
  object: z.literal('otela.secret'),
  name: z.string(),
  created_at: z.int().min(0),
});

export const BATCH_ROUTES: readonly RouteDescription[] = [
  {
    method: 'post',
    path: '/v1/batches',
    summary:
      'Start a batch from a file. If the file is invalid, the batch has the status failed and an error for each invalid line.',
    body: z.object({
      input_file_id: z.string().min(1),
      endpoint: z.enum(BATCH_ENDPOINTS),
      completion_window: completionWindow,
      metadata: z.record(z.string().max(64), z.string().max(512)).nullable().optional().meta({ maxProperties: 16 }),
      output_expires_after: z
        .object({ anchor: z.literal('created_at'), seconds: z.int().min(3_600).max(2_592_000) })
        .nullable()
        .optional(),
      x_otela: z
        .object({ after: z.array(z.string()).max(AFTER_MAX) })
        .optional()
        .meta({
          description:
            'Not in OpenAI’s API. Running batches with results that lines of the new batch need: a line names them as {"$result":[BATCH,LINE]}, by index from 0.',
        }),
    }),
    example: {
      input_file_id: 'file-6f1c3f0e9b7a4d2c8e5f0a1b',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { study: 'claims' },
    },
    answer: batchSchema,
  },
  {
    method: 'get',
    path: '/v1/batches',
    summary:
      "List the batches of the key's project, newest first. With scope=all, which is not in OpenAI's API, keys of operators with the scope admin or admin:read see the batches of all projects.",
    query: listQueryOf(100, 20).extend({ scope: z.enum(['all']).optional() }),
    answer: pageSchemaOf(batchSchema),
  },
  { method: 'get', path: '/v1/batches/{id}', summary: 'Return one batch with its current state.', answer: batchSchema },
  {
    method: 'get',
    path: '/v1/batches/{id}/results',
    summary:
      'Return results of a running batch that arrived after the position `after`, in the form of its output and error files, and the batch. An ended batch has its results in its files. Only for the owner. Not in OpenAI’s API.',
    query: z.object({
      after: z
        .string()
        .regex(/^\d{1,15}$/)
        .optional()
        .meta({ description: 'The `after` of the previous response. Absent: from the first result.' }),
    }),
    answer: z.strictObject({
      object: z.literal('list'),
      data: z.array(resultSchema),
      has_more: z.boolean(),
      after: z.string().meta({ description: 'Position for the next request.' }),
      batch: batchSchema,
    }),
  },
  {
    method: 'get',
    path: '/v1/batches/{id}/log',
    summary:
      'Return the last 32 KiB that the function of a batch printed, also while the batch runs. Only for the owner. Not in OpenAI’s API.',
    answer: z.strictObject({ object: z.literal('otela.batch.log'), text: z.string() }),
  },
  {
    method: 'get',
    path: '/v1/batches/{id}/series',
    summary:
      'Return how the counts of a batch developed, as at most 240 samples. Counts are sums since the start. Not in OpenAI’s API.',
    answer: z.strictObject({
      object: z.literal('list'),
      data: z.array(
        z.strictObject({
          at: z.int().min(0).meta({ description: 'Unix seconds.' }),
          nodes: count.meta({ description: 'Nodes that hold lines.' }),
          completed: count,
          failed: count,
          requeued: count.meta({ description: 'Lines that became open again, because their node was lost.' }),
          gpu_seconds: z.number().min(0),
          leases: count.meta({ description: 'Leases of lines to nodes.' }),
          warm_leases: count.meta({ description: 'Leases to nodes on which the function was loaded.' }),
        }),
      ),
    }),
  },
  {
    method: 'post',
    path: '/v1/batches/{id}/cancel',
    summary: 'Cancel a batch. Its files keep the responses that it has. 409: the batch has ended.',
    answer: batchSchema,
  },
  {
    method: 'post',
    path: '/v1/batches/{id}/pause',
    summary:
      'Pause a batch: no more lines start until it is resumed. Its completion window stays the same. Not in OpenAI’s API.',
    answer: batchSchema,
  },
  {
    method: 'post',
    path: '/v1/batches/{id}/resume',
    summary: 'Resume a paused batch. Not in OpenAI’s API.',
    answer: batchSchema,
  },
  {
    method: 'get',
    path: '/v1/otela/secrets',
    summary: 'List the names of the secrets that functions of the key’s project may get. No response has a value.',
    answer: z.strictObject({ object: z.literal('list'), data: z.array(secretSchema) }),
  },
  {
    method: 'put',
    path: '/v1/otela/secrets/{name}',
    summary: `Store a secret, encrypted, for functions of the key’s project. The name ${SECRET_NAME_RULE}.`,
    body: secretBody,
    example: { value: 'hf_…' },
    answer: secretSchema,
  },
  {
    method: 'delete',
    path: '/v1/otela/secrets/{name}',
    summary: 'Delete a secret. Processes of functions that have it keep it until they end.',
    answer: z.strictObject({ object: z.literal('otela.secret'), name: z.string(), deleted: z.literal(true) }),
  },
];
