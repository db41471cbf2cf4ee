import { useQuery } from '@tanstack/react-query';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';

type CardList = paths['/admin/model-cards']['get']['responses'][200]['content']['application/json'];
export type ModelCard = CardList['data'][number];

/** Operators' descriptions of models, by model. */
export function useCards() {
  return useQuery({
    queryKey: ['model-cards'],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/model-cards', { signal });
      return new Map(data?.data.map((card) => [card.id, card]));
    },
  });
}
