import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import type { ModelLoad, Node } from '../api/schemas.ts';
import { type CatalogueModel, catalogue } from '../parts/catalogue.ts';
import { count, gpus, timeLeft } from '../parts/format.ts';
import { useLive } from '../parts/session.tsx';
import { LANGUAGES, type Language, snippet } from '../parts/snippets.ts';
import { useMinute } from '../parts/use-minute.ts';
import { t } from '../texts/index.ts';
import { Button, buttonClass } from '../ui/button.tsx';
import { Copy } from '../ui/copy.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Empty, Loading, Tag } from '../ui/feedback.tsx';
import { Code, Facts, Page } from '../ui/page.tsx';
import { Segments } from '../ui/segments.tsx';
import { type Column, DataTable } from '../ui/table.tsx';

const texts = t.models;

export function Component() {
  const live = useLive();
  const models = catalogue(live.nodes.values());
  const [shown, setShown] = useState<string>();
  const now = useMinute();
  return (
    <Page title={t.pages.models} about={texts.about}>
      {models.length === 0 && live.connection === 'connecting' && <Loading />}
      {models.length === 0 && live.connection === 'live' && <Empty>{texts.none}</Empty>}
      <ul className="grid gap-4 lg:grid-cols-2">
        {models.map((model) => (
          <ModelCard
            key={model.id}
            model={model}
            load={live.loads.get(model.id)}
            now={now}
            code={() => setShown(model.id)}
          />
        ))}
      </ul>
      {shown !== undefined && <CodeDialog model={shown} close={() => setShown(undefined)} />}
    </Page>
  );
}

interface ModelCardProps {
  model: CatalogueModel;
  /** Undefined: not known. */
  load: ModelLoad | undefined;
  now: number;
  code: () => void;
}

function ModelCard({ model, load, now, code }: ModelCardProps) {
  const { id, serving, loading, silent, contextLength, quantizations, nodes } = model;
  const columns = useMemo(() => columnsOf(now), [now]);
  return (
    <li className="card flex min-w-0 flex-col gap-4 rounded-lg border border-line bg-surface p-5">
      <h2 className="text-lg [overflow-wrap:anywhere]">{id}</h2>
      <p className="flex flex-wrap gap-2">
        {serving > 0 ? <Tag kind="good">{texts.serving(serving)}</Tag> : <Tag kind="bad">{texts.notServed}</Tag>}
        {loading > 0 && <Tag kind="wait">{texts.loading(loading)}</Tag>}
        {silent > 0 && <Tag kind="bad">{texts.silent(silent)}</Tag>}
      </p>
      <Facts>
        <dt>{texts.context}</dt>
        <dd>{contextLength === undefined ? t.common.none : texts.tokens(count(contextLength))}</dd>
        <dt>{texts.weights}</dt>
        <dd>{quantizations.join(', ') || t.common.none}</dd>
        <dt>{texts.load}</dt>
        <dd className="now">
          {load === undefined ? <Unknown /> : texts.running(count(load.running), count(load.waiting))}
        </dd>
        <dt>{texts.rate}</dt>
        <dd className="now">{load?.tokens_per_second == null ? <Unknown /> : count(load.tokens_per_second)}</dd>
      </Facts>
      <DataTable
        label={texts.nodesOf(id)}
        rows={nodes}
        columns={columns}
        rowId={({ session }) => session}
        pageSize={8}
      />
      <p className="mt-auto flex gap-2">
        <Link className={buttonClass({ kind: 'primary' })} href={`/chat?model=${encodeURIComponent(id)}`}>
          {texts.chat}
        </Link>
        <Button onClick={code}>{texts.code}</Button>
      </p>
    </li>
  );
}

/** Engines that do nothing say nothing. */
function Unknown() {
  return (
    <span className="text-muted" title={texts.unknownLoad}>
      {t.common.unknown}
    </span>
  );
}

function columnsOf(now: number): Column<Node>[] {
  const { columns } = texts;
  return [
    { id: 'provider', header: columns.provider, value: ({ provider }) => provider, cell: ({ provider }) => provider },
    {
      id: 'site',
      header: columns.site,
      cell: ({ cluster, region }) => (region === undefined ? cluster : `${cluster}, ${region}`),
    },
    { id: 'gpus', header: columns.gpus, cell: ({ hardware }) => gpus(hardware.gpus) },
    { id: 'left', header: columns.timeLeft, cell: ({ job }) => timeLeft(job?.ends_at, now) },
  ];
}

function CodeDialog({ model, close }: { model: string; close: () => void }) {
  const [language, setLanguage] = useState<Language>('curl');
  const text = snippet(language, model, `${location.origin}/v1`);
  return (
    <Dialog title={texts.use(model)} close={close} footer={<Copy text={text} />}>
      <div className="flex flex-col gap-4">
        <Segments
          label={texts.language}
          value={language}
          options={LANGUAGES.map((value) => ({ value, label: value }))}
          choose={setLanguage}
        />
        <Code label={language}>{text}</Code>
      </div>
    </Dialog>
  );
}
