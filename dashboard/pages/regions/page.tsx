import { useQuery } from '@tanstack/react-query';
import { useRef } from 'react';
import { gateway } from '../../api/client.ts';
import type { Region, RegionsPlan } from '../../api/resources.ts';
import { exactTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Show } from '../../ui/feedback.tsx';
import { Page, Section } from '../../ui/page.tsx';
import { countKey, FlowMatrix, RegionTable, type ResponseCounts } from './region-tables.tsx';

const REFETCH_MS = 5_000;
const texts = t.regions;

/** Regions as this gateway sees them, and its planner's plan. Nothing is changed here: `otela-plan regions` plans. */
export default function RegionsPage() {
  const regions = useQuery({
    queryKey: ['regions'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/regions', { signal })).data?.data ?? [],
    refetchInterval: REFETCH_MS,
  });
  const plan = useQuery({
    queryKey: ['region-plan'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/regions/plan', { signal })).data ?? null,
    refetchInterval: REFETCH_MS,
  });
  const first = useRef<ResponseCounts>(undefined);
  if (first.current === undefined && regions.data !== undefined) first.current = countsOf(regions.data);
  return (
    <Page title={t.pages.regions} about={texts.about}>
      <Show of={regions}>
        {(all) =>
          all.length === 0 ? (
            <Empty>{texts.none}</Empty>
          ) : (
            <>
              <Section title={texts.regions}>
                <RegionTable regions={all} />
              </Section>
              <Section title={texts.matrix}>
                <p className="text-muted">{texts.matrixAbout}</p>
                <FlowMatrix regions={all} plan={plan.data ?? undefined} since={first.current ?? new Map()} />
              </Section>
            </>
          )
        }
      </Show>
      <Section title={texts.plan}>
        <Show of={plan}>{(one) => <PlanWords plan={one} />}</Show>
      </Section>
    </Page>
  );
}

function countsOf(regions: readonly Region[]): ResponseCounts {
  return new Map(
    regions.flatMap(({ region, models }) =>
      models.map(({ model, answered }) => [countKey(region, model), answered ?? 0] as const),
    ),
  );
}

function PlanWords({ plan }: { plan: RegionsPlan | null }) {
  if (plan === null || plan.expires_at === null) return <Empty>{texts.noPlan}</Empty>;
  const until = exactTime(plan.expires_at);
  return (
    <>
      <p>{plan.holds ? texts.holds(plan.planner, until) : texts.over(plan.planner, until)}</p>
      {plan.notes.length > 0 && (
        <ul className="list-disc pl-5">
          {plan.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </>
  );
}
