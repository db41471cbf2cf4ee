/** The resources of the admin REST API, by the names that the pages use. Types come from the generated contract. */

import { useInfiniteQuery } from '@tanstack/react-query';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { paths } from './contract.ts';

type Json<T> = { content: { 'application/json': T } };
type Row<Path extends keyof paths> = paths[Path] extends { get: { responses: { 200: Json<{ data: (infer T)[] }> } } }
  ? T
  : never;
type Body<Path extends keyof paths, Method extends 'post' | 'put' | 'patch'> =
  paths[Path] extends Record<Method, { requestBody: Json<infer T> }> ? T : never;

export type User = Row<'/admin/users'>;
export type Project = Row<'/admin/projects'>;
export type Provider = Row<'/admin/providers'>;
export type AccessRequest = Row<'/admin/access-requests'>;
export type ProviderRight = Row<'/admin/provider-rights'>;
export type Key = Row<'/admin/keys'>;
export type JoinToken = Row<'/admin/join-tokens'>;
export type Peer = Row<'/admin/peers'>;
export type ModelRow = Row<'/admin/models'>;
export type ModelWeights = Row<'/admin/routing'>;
export type AuditEntry = Row<'/admin/audit'>;
export type FactoryStatus = Row<'/admin/factory'>;
export type Region = Row<'/admin/regions'>;
export type RegionsPlan = paths['/admin/regions/plan']['get']['responses'][200]['content']['application/json'];
export type Settings = paths['/admin/settings']['get']['responses'][200]['content']['application/json'];

export type NewKey = Body<'/admin/keys', 'post'>;
export type SettableModel = Body<'/admin/models/{id}', 'put'>;
export type Weights = Body<'/admin/routing/{model}', 'put'>['weights'];
export type SettingsChange = Body<'/admin/settings', 'patch'>;

/** Rows per request; the gateway returns no more. */
const PAGE_ROWS = 100;

export interface ListQuery {
  limit: number;
  after?: string;
}
interface ListPage<T> {
  data: T[];
  has_more: boolean;
}

export interface Resources<T> {
  data: T[] | undefined;
  error: Error | null;
  refetch: () => unknown;
  /** Loads the next page; undefined: all rows are loaded. */
  showMore: (() => void) | undefined;
}

/**
 * A list that the gateway returns in pages. `load` requests one page; `everyMs` returns the interval at which it is
 * refetched.
 */
export function useResources<T extends { id: string | number }>(
  name: string,
  load: (query: ListQuery, signal: AbortSignal) => Promise<{ data?: ListPage<T> | undefined }>,
  everyMs?: (rows: readonly T[]) => number,
): Resources<T> {
  const query = useInfiniteQuery({
    queryKey: [name],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) => {
      const { data } = await load({ limit: PAGE_ROWS, ...(pageParam !== '' && { after: pageParam }) }, signal);
      return data ?? { data: [], has_more: false };
    },
    getNextPageParam: ({ data, has_more }: ListPage<T>) => {
      const last = data.at(-1);
      return has_more && last !== undefined ? String(last.id) : undefined;
    },
    refetchInterval: ({ state }) =>
      everyMs === undefined ? false : everyMs(state.data?.pages.flatMap(({ data }) => data) ?? []),
  });
  return {
    data: query.data?.pages.flatMap(({ data }) => data),
    error: query.error,
    refetch: query.refetch,
    showMore: query.hasNextPage ? () => neverRejects(query.fetchNextPage()) : undefined,
  };
}
