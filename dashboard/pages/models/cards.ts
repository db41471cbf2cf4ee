import { useQuery } from '@tanstack/react-query';
import * as z from 'zod/mini';
import { ask, gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { listOf } from '../../api/schemas.ts';

type CardList = paths['/admin/model-cards']['get']['responses'][200]['content']['application/json'];
export type ModelCard = CardList['data'][number];

/** What operators say of models, by model. */
export function useCards() {
  return useQuery({
    queryKey: ['model-cards'],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/model-cards', { signal });
      return new Map(data?.data.map((card) => [card.id, card]));
    },
  });
}

const LOADING_AGAIN_MS = 3_000;

const loadingSchema = listOf(
  z.object({ id: z.string(), state: z.optional(z.string()), ready_in_ms: z.optional(z.nullable(z.number())) }),
);

/** Milliseconds until models that are loading are ready, by how long earlier starts took. Asked for while there are some. */
export function useReadyIn(someAreLoading: boolean): ReadonlyMap<string, number> {
  const { data } = useQuery({
    queryKey: ['models-loading'],
    queryFn: async ({ signal }) => {
      const { data: all } = await ask(loadingSchema, '/v1/models?state=all', signal);
      return new Map(all.flatMap(({ id, ready_in_ms: ms }) => (ms == null ? [] : [[id, ms] as const])));
    },
    enabled: someAreLoading,
    refetchInterval: LOADING_AGAIN_MS,
  });
  return data ?? NONE;
}

const NONE: ReadonlyMap<string, number> = new Map();
