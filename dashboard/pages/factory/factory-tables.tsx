/** An autoscaler's reports, one table each. */
import type { FactoryStatus } from '../../api/resources.ts';
import { about, count, exactTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Tag } from '../../ui/feedback.tsx';
import { type Column, DataTable, Nowrap } from '../../ui/table.tsx';

type Model = FactoryStatus['models'][number];
type Job = FactoryStatus['jobs'][number];
type Cluster = FactoryStatus['clusters'][number];
type Decision = FactoryStatus['decisions'][number] & { n: number };

const texts = t.factory;
/** Number of decisions that are shown, the newest ones. */
const DECISIONS_SHOWN = 20;

const MODEL_KINDS = {
  cold: 'plain',
  queued: 'wait',
  starting: 'wait',
  loading: 'wait',
  ready: 'good',
  resting: 'bad',
} as const satisfies Record<Model['state'], string>;

const JOB_KINDS = {
  pending: 'wait',
  starting: 'wait',
  loading: 'wait',
  ready: 'good',
  draining: 'wait',
  ended: 'plain',
  failed: 'bad',
  unknown: 'plain',
} as const satisfies Record<Job['state'], string>;

const modelWords = ({ state, progress }: Model) =>
  state === 'loading' && progress !== undefined ? texts.loading(Math.round(100 * progress)) : texts.modelStates[state];

const m = texts.modelColumns;
const MODEL_COLUMNS: readonly Column<Model>[] = [
  { id: 'model', header: m.model, value: ({ id }) => id, cell: ({ id }) => id },
  {
    id: 'state',
    header: m.state,
    value: ({ state }) => state,
    cell: (model) => <Tag kind={MODEL_KINDS[model.state]}>{modelWords(model)}</Tag>,
  },
  {
    id: 'jobs',
    header: m.jobs,
    value: ({ running }) => running,
    cell: ({ ready, running, max }) => <Nowrap>{texts.jobsOf(ready, running, max)}</Nowrap>,
  },
  {
    id: 'pending',
    header: m.pending,
    value: ({ pending }) => pending,
    cell: ({ pending }) => count(pending),
    numeric: true,
  },
  {
    id: 'ready',
    header: m.ready,
    cell: ({ state, estimate_ms: ms }) => (ms === undefined || state === 'ready' ? t.common.none : about(ms)),
  },
  { id: 'why', header: m.why, cell: ({ reason }) => reason ?? '' },
];

const j = texts.jobColumns;
const JOB_COLUMNS: readonly Column<Job>[] = [
  { id: 'job', header: j.job, value: ({ id }) => id, cell: ({ id }) => <code>{id}</code> },
  { id: 'cluster', header: j.cluster, value: ({ cluster }) => cluster, cell: ({ cluster }) => cluster },
  { id: 'model', header: j.model, value: ({ model }) => model, cell: ({ model }) => model },
  {
    id: 'state',
    header: j.state,
    value: ({ state }) => state,
    cell: ({ state }) => <Tag kind={JOB_KINDS[state]}>{texts.jobStates[state]}</Tag>,
  },
  {
    id: 'gpus',
    header: j.gpus,
    value: ({ gpus }) => gpus,
    cell: ({ gpus, gpu }) => <Nowrap>{gpu === undefined ? count(gpus) : `${gpus} × ${gpu}`}</Nowrap>,
  },
  { id: 'since', header: j.since, value: ({ since_ms }) => since_ms, cell: ({ since_ms }) => about(since_ms) },
  { id: 'why', header: j.why, cell: (job) => <Why of={job} /> },
];

function Why({ of: { id, reason, log_tail: log } }: { of: Job }) {
  if (log === undefined || log === '') return <>{reason ?? ''}</>;
  return (
    <details>
      <summary className="cursor-pointer">{reason ?? texts.log}</summary>
      <section aria-label={`${texts.log}: ${id}`} tabIndex={0} className="max-h-60 max-w-xl overflow-auto">
        <pre className="font-mono text-xs">{log}</pre>
      </section>
    </details>
  );
}

const c = texts.clusterColumns;
const CLUSTER_COLUMNS: readonly Column<Cluster>[] = [
  { id: 'cluster', header: c.cluster, value: ({ id }) => id, cell: ({ id }) => id },
  { id: 'by', header: c.by, cell: ({ launcher }) => launcher },
  {
    id: 'state',
    header: c.state,
    cell: ({ reachable }) =>
      reachable ? <Tag kind="good">{texts.reachable}</Tag> : <Tag kind="bad">{texts.unreachable}</Tag>,
  },
  {
    id: 'jobs',
    header: c.jobs,
    cell: ({ running, pending }) => <Nowrap>{texts.jobsThere(running, pending)}</Nowrap>,
  },
  {
    id: 'idle',
    header: c.idle,
    cell: ({ idle_gpus: idle }) => (idle === undefined ? t.common.unknown : count(idle)),
    numeric: true,
  },
  { id: 'why', header: c.why, cell: ({ reason }) => reason ?? '' },
];

const d = texts.decisionColumns;
const DECISION_COLUMNS: readonly Column<Decision>[] = [
  { id: 'when', header: d.when, cell: ({ at }) => <Nowrap>{exactTime(at)}</Nowrap> },
  { id: 'model', header: d.model, cell: ({ model }) => model ?? t.common.none },
  { id: 'what', header: d.what, cell: ({ text }) => text },
];

interface TableProps {
  of: FactoryStatus;
}

export function ModelTable({ of: { models } }: TableProps) {
  if (models.length === 0) return <Empty>{texts.noModels}</Empty>;
  return <DataTable label={texts.models} rows={models} columns={MODEL_COLUMNS} rowId={({ id }) => id} />;
}

export function JobTable({ of: { jobs } }: TableProps) {
  if (jobs.length === 0) return <Empty>{texts.noJobs}</Empty>;
  return (
    <DataTable label={texts.jobs} rows={jobs} columns={JOB_COLUMNS} rowId={({ cluster, id }) => `${cluster} ${id}`} />
  );
}

export function ClusterTable({ of: { clusters } }: TableProps) {
  if (clusters.length === 0) return <Empty>{texts.noClusters}</Empty>;
  return <DataTable label={texts.clusters} rows={clusters} columns={CLUSTER_COLUMNS} rowId={({ id }) => id} />;
}

export function DecisionTable({ of: { decisions } }: TableProps) {
  if (decisions.length === 0) return <Empty>{texts.noDecisions}</Empty>;
  const rows = decisions.map((decision, n) => ({ ...decision, n })).reverse();
  return (
    <DataTable
      label={texts.decisions}
      rows={rows}
      columns={DECISION_COLUMNS}
      rowId={({ n }) => String(n)}
      pageSize={DECISIONS_SHOWN}
    />
  );
}
