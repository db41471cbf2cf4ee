/** `/v1/batches` and `/v1/files`, by the names that the pages use. Times are Unix seconds. */
import { basePath } from './base-path.ts';
import { gateway } from './client.ts';
import type { paths } from './contract.ts';
import type { ListQuery } from './resources.ts';

type Json<T> = { content: { 'application/json': T } };
type Got<Path extends keyof paths> = paths[Path] extends { get: { responses: { 200: Json<infer T> } } } ? T : never;

export type Batch = Got<'/v1/batches/{id}'>;
export type BatchFile = Got<'/v1/files/{id}'>;

const at = (id: string) => ({ params: { path: { id } } });

/** `ofAll`: the batches of all users, for operators. */
export const readBatches = (query: ListQuery, ofAll: boolean, signal: AbortSignal) =>
  gateway.GET('/v1/batches', { params: { query: { ...query, ...(ofAll && { scope: 'all' as const }) } }, signal });

export const readBatch = async (id: string, signal: AbortSignal) =>
  known((await gateway.GET('/v1/batches/{id}', { ...at(id), signal })).data);

export type BatchSample = Got<'/v1/batches/{id}/series'>['data'][number];

export const readBatchSeries = async (id: string, signal: AbortSignal) =>
  known((await gateway.GET('/v1/batches/{id}/series', { ...at(id), signal })).data).data;

export const changeBatch = async (id: string, change: 'cancel' | 'pause' | 'resume') =>
  known((await gateway.POST(`/v1/batches/{id}/${change}`, at(id))).data);

/** `name` is stored in the batch's metadata. */
export const createBatch = async (input: string, endpoint: Batch['endpoint'], name: string) =>
  known(
    (
      await gateway.POST('/v1/batches', {
        body: {
          input_file_id: input,
          endpoint,
          completion_window: '24h',
          ...(name !== '' && { metadata: { name } }),
        },
      })
    ).data,
  );

export const readFiles = (query: ListQuery, signal: AbortSignal) =>
  gateway.GET('/v1/files', { params: { query }, signal });

export const deleteFile = (id: string) => gateway.DELETE('/v1/files/{id}', at(id));

/** The gateway sends the file under the name that it was uploaded with. */
export const contentPath = (id: string) => `${basePath}/v1/files/${encodeURIComponent(id)}/content`;

export function isOver({ status }: Batch): boolean {
  return status === 'completed' || status === 'failed' || status === 'expired' || status === 'cancelled';
}

/** Returns the body of a success. It is always there, because `gateway` throws if the status is an error. */
function known<T>(data: T | undefined): T {
  if (data === undefined) throw new TypeError('a success has a body');
  return data;
}
