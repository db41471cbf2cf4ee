import { lazy, type ReactNode, Suspense, useMemo } from 'react';
import { Link } from 'wouter';
import type { Me, ModelLoad, Node } from '../../api/schemas.ts';
import { count, gpus, milliseconds, timeLeft } from '../../parts/format.ts';
import { type CatalogueModel, precisionName } from '../../parts/model-catalog.ts';
import { t } from '../../texts/index.ts';
import { Button, buttonClass } from '../../ui/button.tsx';
import { Tag } from '../../ui/feedback.tsx';
import type { Icon as IconType } from '../../ui/icon.ts';
import {
  AudioLines,
  Brain,
  Code as CodeIcon,
  ExternalLink,
  Image,
  MessageSquare,
  Pencil,
  Text,
  Video,
  Waypoints,
  Wrench,
} from '../../ui/icons.ts';
import { Facts } from '../../ui/page.tsx';
import { type Column, DataTable } from '../../ui/table.tsx';
import { mayOrder, type ReplicaAction, ReplicaMenu } from './replica-actions.tsx';
import type { ModelCard } from './use-model-cards.ts';

/** Operators describe models in Markdown. The code for it is loaded only if a model has a description. */
const Markdown = lazy(() => import('../../chat/markdown/markdown.tsx'));

const texts = t.models;

interface ModelTileProps {
  model: CatalogueModel;
  card: ModelCard | undefined;
  /** Current load of the model's engines; undefined: not known. */
  load: ModelLoad | undefined;
  readyInMs: number | undefined;
  now: number;
  me: Me;
  /** Opens the dialog of an action on one of the nodes. */
  ask: (action: ReplicaAction) => void;
  code: () => void;
  /** Opens the form for the description; undefined: the user is not an operator. */
  describe: (() => void) | undefined;
}

export function ModelTile({ model, card, load, readyInMs, now, me, ask, code, describe }: ModelTileProps) {
  const { id, quantizations, nodes } = model;
  const differ = doReplicasDiffer(model);
  // Not `nodes`, which changes with every event: new columns would close an open menu.
  const hasActions = nodes.some((node) => mayOrder(me, node));
  const columns = useMemo(() => {
    const cell = (node: Node) => <ReplicaMenu me={me} model={id} node={node} ask={ask} />;
    return [
      ...columnsOf(now),
      ...(differ ? [kindColumn(id)] : []),
      ...(hasActions ? [{ id: 'actions', header: texts.columns.actions, cell }] : []),
    ];
  }, [now, me, id, differ, hasActions, ask]);
  const contexts = card?.context_length != null ? [card.context_length] : model.contexts;
  return (
    <li className="card flex min-w-0 flex-col gap-4 rounded-lg border border-line bg-surface p-5">
      <div className="flex flex-col gap-2">
        <h2 className="text-lg [overflow-wrap:anywhere]">{id}</h2>
        <p className="flex flex-wrap gap-1.5">
          <States model={model} load={load} readyInMs={readyInMs} />
          <Abilities card={card} />
        </p>
      </div>
      {card !== undefined && card.description !== '' && (
        <Suspense fallback={<p>{card.description}</p>}>
          <Markdown text={card.description} />
        </Suspense>
      )}
      <Facts>
        {card?.size && <Fact name={texts.size}>{card.size}</Fact>}
        {model.parent !== undefined && <Fact name={texts.parent}>{model.parent}</Fact>}
        {card?.license && <Fact name={texts.license}>{card.license}</Fact>}
        <Fact name={texts.context}>{contexts.map(texts.tokens).join(', ') || t.common.none}</Fact>
        {quantizations.length > 0 && <Fact name={texts.weights}>{quantizations.join(', ')}</Fact>}
        <Fact name={texts.load} now>
          {load === undefined ? <Unknown /> : texts.running(count(load.running), count(load.waiting))}
        </Fact>
        <Fact name={texts.rate} now>
          {load?.tokens_per_second == null ? <Unknown /> : count(load.tokens_per_second)}
        </Fact>
      </Facts>
      <DataTable
        label={texts.nodesOf(id)}
        rows={nodes}
        columns={columns}
        rowId={({ session }) => session}
        pageSize={8}
      />
      <div className="mt-auto flex flex-wrap gap-2">
        <Link className={buttonClass({ kind: 'primary' })} href={`/chat?model=${encodeURIComponent(id)}`}>
          <MessageSquare className="size-4" aria-hidden />
          {texts.chat}
        </Link>
        <Button onClick={code}>
          <CodeIcon className="size-4" aria-hidden />
          {texts.code}
        </Button>
        {card?.url && (
          <a className={buttonClass({ kind: 'ghost' })} href={card.url} target="_blank" rel="noopener noreferrer">
            <ExternalLink className="size-4" aria-hidden />
            {texts.more}
          </a>
        )}
        {describe && (
          <Button kind="ghost" onClick={describe}>
            <Pencil className="size-4" aria-hidden />
            {texts.describe}
          </Button>
        )}
      </div>
    </li>
  );
}

function Fact({ name, now = false, children }: { name: string; now?: boolean; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd className={now ? 'now' : undefined}>{children}</dd>
    </>
  );
}

function States({ model, load, readyInMs }: Pick<ModelTileProps, 'model' | 'load' | 'readyInMs'>) {
  const { serving, loading, asleep, onDisk, silent } = model;
  const loadingText =
    serving === 0 && readyInMs !== undefined ? texts.loadingFor(milliseconds(readyInMs)) : texts.loading(loading);
  const asleepText =
    serving === 0 && readyInMs !== undefined ? texts.asleepFor(milliseconds(readyInMs)) : texts.asleep(asleep);
  return (
    <>
      {serving > 0 ? (
        <Tag kind="good">{texts.serving(serving)}</Tag>
      ) : (
        loading + asleep + onDisk === 0 && <Tag kind="bad">{texts.notServed}</Tag>
      )}
      {load !== undefined && load.waiting > 0 && <Tag kind="wait">{texts.busy(load.waiting)}</Tag>}
      {asleep > 0 && <Tag kind="plain">{asleepText}</Tag>}
      {onDisk > 0 && <Tag kind="plain">{texts.onDisk(onDisk)}</Tag>}
      {loading > 0 && <Tag kind="wait">{loadingText}</Tag>}
      {doReplicasDiffer(model) && <Tag kind="wait">{texts.differ}</Tag>}
      {silent > 0 && <Tag kind="bad">{texts.silent(silent)}</Tag>}
    </>
  );
}

const MODALITY_ICONS: Readonly<Record<ModelCard['input'][number], IconType>> = {
  text: Text,
  image: Image,
  audio: AudioLines,
  video: Video,
  embedding: Waypoints,
};

/** What the model reads, writes and can do, as described by operators. */
function Abilities({ card }: { card: ModelCard | undefined }) {
  if (card === undefined) return null;
  const { modalities } = texts;
  return (
    <>
      {card.input.map((one) => (
        <Ability key={one} icon={MODALITY_ICONS[one]} text={modalities[one]} />
      ))}
      {card.output.includes('embedding') && <Ability icon={Waypoints} text={modalities.embedding} />}
      {card.tools === true && <Ability icon={Wrench} text={texts.tools} />}
      {card.reasoning === true && <Ability icon={Brain} text={texts.reasoning} />}
    </>
  );
}

function Ability({ icon: Icon, text }: { icon: IconType; text: string }) {
  return (
    <Tag kind="plain">
      <Icon className="mr-1 size-3" aria-hidden />
      {text}
    </Tag>
  );
}

/** True if a client may get another precision or context from one node than from another. */
function doReplicasDiffer({ contexts, quantizations }: CatalogueModel): boolean {
  return contexts.length > 1 || quantizations.length > 1;
}

/** Precision and context of the model on each node. */
function kindColumn(id: string): Column<Node> {
  const kind = ({ models }: Node): string => {
    const served = models.find((model) => model.id === id);
    const context = served?.context_length;
    const precision = served?.quantization && precisionName(served.quantization);
    return [precision, context && texts.tokens(context)].filter(Boolean).join(', ');
  };
  return { id: 'kind', header: texts.columns.kind, value: kind, cell: kind };
}

/** Shown in place of a load, because an idle engine reports none. */
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
