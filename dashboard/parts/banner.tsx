import { useQuery } from '@tanstack/react-query';
import clsx from 'clsx';
import { readGateway } from '../api/client.ts';
import { meSchema } from '../api/schemas.ts';
import { useMe } from './session.tsx';

/** A new message of the operator is shown on open pages within this time. */
const REFETCH_MS = 5 * 60_000;

/** Shows the operator's message above every page. */
export function Banner() {
  const me = useMe();
  const { data } = useQuery({
    queryKey: ['banner'],
    queryFn: async ({ signal }) => (await readGateway(meSchema, '/admin/me', signal)).banner ?? null,
    initialData: me.banner ?? null,
    refetchInterval: REFETCH_MS,
  });
  if (data === null) return null;
  return (
    <p
      role="status"
      className={clsx(
        'shrink-0 border-line border-b px-6 py-2 text-sm [overflow-wrap:anywhere]',
        data.level === 'warning' ? 'bg-wait-soft text-wait' : 'bg-accent-soft text-accent',
      )}
    >
      {data.text}
    </p>
  );
}
