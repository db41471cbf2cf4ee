import { lazy, Suspense, useMemo, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { dateTime } from '../../parts/format.ts';
import { catalogueOf, goneModels } from '../../parts/model-catalog.ts';
import { useLive, useMe } from '../../parts/session.tsx';
import { useAllModels } from '../../parts/startable-models.ts';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Empty, Loading } from '../../ui/feedback.tsx';
import { Input } from '../../ui/field.tsx';
import { Search } from '../../ui/icons.ts';
import { Page, Section } from '../../ui/page.tsx';
import { CodeDialog } from './code-dialog.tsx';
import { ModelTile } from './model-tile.tsx';
import { idleNodes, type ReplicaAction, ReplicaDialog } from './replica-actions.tsx';
import { StartableList } from './startable-list.tsx';
import { type ModelCard, useCards } from './use-model-cards.ts';

const CardForm = lazy(() => import('./model-card-form.tsx'));

const texts = t.models;

export default function ModelsPage() {
  const me = useMe();
  const live = useLive();
  const now = useMinute();
  const cards = useCards();
  const [query, setQuery] = useState('');
  const [code, setCode] = useState<string>();
  const [described, setDescribed] = useState<string>();
  const [asked, setAsked] = useState<ReplicaAction>();
  const [ordered, setOrdered] = useState<string>();
  const models = useMemo(() => catalogueOf(live.nodes.values()), [live.nodes]);
  const gone = useMemo(
    () => goneModels(live.nodes.values(), [...(cards.data?.keys() ?? [])]),
    [live.nodes, cards.data],
  );
  const { startable, readyIn } = useAllModels(models.some(({ serving, loading }) => serving === 0 && loading > 0));
  const isFound = (id: string) => matches(id, cards.data?.get(id), query);
  const shown = models.filter(({ id }) => isFound(id));
  const shownStartable = startable.filter(({ id }) => isFound(id) && !models.some((one) => one.id === id));
  const shownGone = gone.filter(({ id }) => isFound(id) && !startable.some((one) => one.id === id));
  const isOperator = me.role === 'operator';
  const load = me.role !== 'consumer' && (
    <Button onClick={() => setAsked({ kind: 'load' })}>{texts.replicas.loadTitle}</Button>
  );
  const find = models.length + gone.length > 0 && (
    <div className="relative w-64 max-w-full">
      <Search className="pointer-events-none absolute top-2.5 left-3 size-4 text-muted" aria-hidden />
      <Input
        type="search"
        aria-label={texts.find}
        placeholder={texts.find}
        value={query}
        onChange={(event) => setQuery(event.currentTarget.value)}
        className="pl-9"
      />
    </div>
  );
  return (
    <Page
      title={t.pages.models}
      about={texts.about}
      actions={
        <>
          {find}
          {load}
        </>
      }
    >
      {ordered !== undefined && (
        <p role="status" className="text-muted text-sm">
          {ordered}
        </p>
      )}
      {models.length === 0 && live.connection === 'connecting' && <Loading />}
      {models.length + startable.length === 0 && live.connection === 'live' && <Empty>{texts.none}</Empty>}
      {models.length > 0 && shown.length + shownStartable.length + shownGone.length === 0 && (
        <Empty>{texts.notFound}</Empty>
      )}
      <ul className="grid gap-4 xl:grid-cols-2">
        {shown.map((model) => (
          <ModelTile
            key={model.id}
            model={model}
            card={cards.data?.get(model.id)}
            load={live.loads.get(model.id)}
            readyInMs={readyIn.get(model.id)}
            now={now}
            me={me}
            ask={setAsked}
            code={() => setCode(model.id)}
            describe={isOperator ? () => setDescribed(model.id) : undefined}
          />
        ))}
      </ul>
      <StartableList models={shownStartable} />
      {shownGone.length > 0 && (
        <Section title={texts.goneTitle}>
          <ul className="divide-y divide-line rounded-lg border border-line bg-surface">
            {shownGone.map(({ id, since }) => (
              <li key={id} className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2.5">
                <span className="min-w-0 flex-1 font-medium text-sm [overflow-wrap:anywhere]">{id}</span>
                <span className="text-muted text-sm">
                  {since === undefined ? texts.notServed : texts.goneSince(dateTime(since))}
                </span>
                {isOperator && (
                  <Button size="small" kind="ghost" onClick={() => setDescribed(id)}>
                    {texts.describe}
                  </Button>
                )}
              </li>
            ))}
          </ul>
        </Section>
      )}
      {code !== undefined && <CodeDialog model={code} close={() => setCode(undefined)} />}
      {asked !== undefined && (
        <ReplicaDialog
          action={asked}
          idle={idleNodes(me, live.nodes.values())}
          done={setOrdered}
          close={() => setAsked(undefined)}
        />
      )}
      {described !== undefined && (
        <Suspense>
          <CardForm
            model={described}
            card={cards.data?.get(described)}
            saved={() => neverRejects(cards.refetch())}
            close={() => setDescribed(undefined)}
          />
        </Suspense>
      )}
    </Page>
  );
}

function matches(id: string, card: ModelCard | undefined, query: string): boolean {
  const text = [id, card?.description, card?.license, card?.size, ...(card?.input ?? [])].join(' ').toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
