import { useQuery } from '@tanstack/react-query';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';
import { count } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Show } from '../../ui/feedback.tsx';
import { Meter } from '../../ui/meter.tsx';
import { Section } from '../../ui/page.tsx';

type Limits = paths['/admin/me/limits']['get']['responses'][200]['content']['application/json'];
type LimitUse = Limits['key'][number];

/** Refetch interval: limits per minute renew while the page is open. */
const REFETCH_MS = 10_000;

const texts = t.usage;

/** Shows the remaining part of each limit. */
export function Quota() {
  const limits = useQuery({
    queryKey: ['my-limits'],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/me/limits', { signal });
      return [
        ...(data?.key.map((use) => ({ ...use, of: texts.ofKey })) ?? []),
        ...(data?.user.map((use) => ({ ...use, of: texts.ofPerson })) ?? []),
        ...(data?.project.map((use) => ({ ...use, of: texts.ofProject })) ?? []),
      ];
    },
    refetchInterval: REFETCH_MS,
  });
  return (
    <Section title={texts.left}>
      <Show of={limits}>
        {(uses) =>
          uses.length === 0 ? (
            <p className="text-muted">{texts.noLimits}</p>
          ) : (
            <ul className="grid gap-4 sm:grid-cols-2 lg:grid-cols-4">
              {uses.map((use) => (
                <Limit key={`${use.of}${use.limit}${use.model}`} use={use} of={use.of} />
              ))}
            </ul>
          )
        }
      </Show>
    </Section>
  );
}

function Limit({ use: { limit, allowed, used, model }, of }: { use: LimitUse; of: string }) {
  const left = Math.max(0, allowed - used);
  return (
    <li className="flex flex-col gap-2 rounded-lg border border-line bg-surface p-4">
      <Meter
        label={texts.limits[limit]}
        value={used}
        max={allowed}
        text={texts.leftOf(count(left), count(allowed))}
        note={model === undefined ? of : texts.ofModel(of, model)}
      />
    </li>
  );
}
