import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useMemo, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { gateway } from '../../api/client.ts';
import type { ModelRow, ModelWeights } from '../../api/resources.ts';
import { catalogueOf } from '../../parts/model-catalog.ts';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { useLive } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm, Dialog } from '../../ui/dialog.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Form, WIDE } from '../../ui/form.tsx';
import { Page } from '../../ui/page.tsx';
import type { Column } from '../../ui/table.tsx';
import { useCards } from '../models/use-model-cards.ts';
import { ModelSettingsDialog } from './model-settings-dialog.tsx';
import { WeightsDialog } from './weights-dialog.tsx';

const CardForm = lazy(() => import('../models/model-card-form.tsx'));

const texts = t.routing;

/** A model that is served now or has settings. */
interface RoutedModel {
  id: string;
  settings: ModelRow | undefined;
  weights: ModelWeights['weights'];
}

type Asked = { kind: 'settings' | 'weights' | 'card' | 'reset'; model: string } | { kind: 'other' };

function useRouting() {
  const settings = useQuery({
    queryKey: ['model-settings'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/models', { signal })).data?.data ?? [],
  });
  const weights = useQuery({
    queryKey: ['model-weights'],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/routing', { signal })).data?.data ?? [],
  });
  const refetch = () => Promise.all([settings.refetch(), weights.refetch()]);
  return { settings: settings.data, weights: weights.data, error: settings.error ?? weights.error, refetch };
}

export default function Routing() {
  const { nodes } = useLive();
  const { settings, weights, error, refetch } = useRouting();
  const cards = useCards();
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const rows = useMemo(() => {
    if (settings === undefined || weights === undefined) return undefined;
    const served = catalogueOf(nodes.values()).map(({ id }) => id);
    const ids = new Set([...served, ...settings.map(({ id }) => id), ...weights.map(({ model }) => model)]);
    return [...ids].sort().map(
      (id): RoutedModel => ({
        id,
        settings: settings.find((one) => one.id === id),
        weights: weights.find(({ model }) => model === id)?.weights ?? [],
      }),
    );
  }, [nodes, settings, weights]);
  const columns = useMemo(() => columnsOf((kind, model) => setAsked({ kind, model })), []);
  const row = asked !== undefined && asked.kind !== 'other' ? rows?.find(({ id }) => id === asked.model) : undefined;
  return (
    <Page
      title={t.admin.tabs.routing}
      about={texts.about}
      actions={<Button onClick={() => setAsked({ kind: 'other' })}>{texts.other}</Button>}
    >
      <ResourceList
        label={t.admin.tabs.routing}
        of={{ data: rows, error, refetch, showMore: undefined }}
        columns={columns}
        none={texts.none}
        words={({ id, settings: own }) => `${id} ${own?.aliases.join(' ') ?? ''}`}
        rowId={({ id }) => id}
      />
      {asked?.kind === 'other' && (
        <OtherModel chosen={(model) => setAsked({ kind: 'settings', model })} close={close} />
      )}
      {asked?.kind === 'settings' && (
        <ModelSettingsDialog model={asked.model} settings={row?.settings} saved={refetch} close={close} />
      )}
      {asked?.kind === 'weights' && (
        <WeightsDialog model={asked.model} weights={row?.weights ?? []} saved={refetch} close={close} />
      )}
      {asked?.kind === 'card' && (
        <Suspense>
          <CardForm
            model={asked.model}
            card={cards.data?.get(asked.model)}
            saved={() => neverRejects(cards.refetch())}
            close={close}
          />
        </Suspense>
      )}
      {asked?.kind === 'reset' && (
        <Confirm
          title={texts.resetTitle(asked.model)}
          action={texts.reset}
          act={() => reset(asked.model).then(refetch)}
          close={close}
        >
          {texts.resetFollows}
        </Confirm>
      )}
    </Page>
  );
}

async function reset(model: string): Promise<void> {
  await gateway.DELETE('/admin/models/{id}', { params: { path: { id: model } } });
  await gateway.DELETE('/admin/routing/{model}', { params: { path: { model } } });
}

/** Asks for the name of a model without a node: its settings may be made before a node serves it. */
function OtherModel({ chosen, close }: { chosen: (model: string) => void; close: () => void }) {
  return (
    <Dialog title={texts.otherTitle} close={close} size="small">
      <Form action={texts.edit} submit={async (filled) => chosen(filled.text('model'))}>
        <Field label={texts.form.model} hint={texts.otherHint} className={WIDE}>
          {(id) => <Input id={id} name="model" required maxLength={256} spellCheck={false} />}
        </Field>
      </Form>
    </Dialog>
  );
}

function columnsOf(
  ask: (kind: 'settings' | 'weights' | 'card' | 'reset', model: string) => void,
): Column<RoutedModel>[] {
  const { columns } = texts;
  return [
    {
      id: 'model',
      header: columns.model,
      value: ({ id }) => id,
      cell: ({ id }) => <span className="[overflow-wrap:anywhere]">{id}</span>,
    },
    { id: 'policy', header: columns.policy, cell: ({ settings }) => settings?.policy ?? texts.byDefault },
    { id: 'aliases', header: columns.aliases, cell: ({ settings }) => settings?.aliases.join(', ') || t.common.none },
    {
      id: 'fallbacks',
      header: columns.fallbacks,
      cell: ({ settings }) => settings?.fallbacks.join(', ') || t.common.none,
    },
    {
      id: 'weights',
      header: columns.weights,
      cell: ({ weights }) => (weights.length === 0 ? t.common.none : texts.rules(weights.length)),
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: ({ id, settings, weights }) => (
        <RowMenu
          name={id}
          actions={[
            { label: texts.edit, act: () => ask('settings', id) },
            { label: texts.weights, act: () => ask('weights', id) },
            { label: texts.describe, act: () => ask('card', id) },
            (settings !== undefined || weights.length > 0) && {
              label: texts.reset,
              act: () => ask('reset', id),
              danger: true,
            },
          ]}
        />
      ),
    },
  ];
}
