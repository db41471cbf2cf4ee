/** The tables of regions, and of models by region. */
import { useMemo } from 'react';
import type { Region, RegionsPlan } from '../../api/resources.ts';
import { count, milliseconds } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Empty, Tag } from '../../ui/feedback.tsx';
import { type Column, DataTable, Nowrap } from '../../ui/table.tsx';

const texts = t.regions;
const c = texts.columns;

/** Responses by region and model, as of when the page was opened. */
export type ResponseCounts = ReadonlyMap<string, number>;
export const countKey = (region: string, model: string) => `${region}\n${model}`;

const nameOf = (region: string) => (region === '' ? texts.unnamed : region);
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const running = ({ models }: Region) => sum(models.map((model) => model.running));
const waiting = ({ models }: Region) => sum(models.map((model) => model.waiting));

const REGION_COLUMNS: readonly Column<Region>[] = [
  { id: 'region', header: c.region, value: ({ region }) => region, cell: ({ region }) => nameOf(region) },
  {
    id: 'nodes',
    header: c.nodes,
    value: ({ nodes }) => nodes,
    cell: ({ nodes, suspected }) => <Nowrap>{texts.nodes(nodes, suspected)}</Nowrap>,
  },
  { id: 'price', header: c.price, value: ({ price }) => price.usd_kwh ?? 0, cell: ({ price }) => <Price of={price} /> },
  { id: 'trip', header: c.trip, value: (region) => medianMs(region) ?? 0, cell: (region) => tripWords(region) },
  { id: 'running', header: c.running, value: running, cell: (region) => count(running(region)), numeric: true },
  { id: 'waiting', header: c.waiting, value: waiting, cell: (region) => count(waiting(region)), numeric: true },
];

function Price({ of: { usd_kwh: usd, state } }: { of: Region['price'] }) {
  return (
    <Nowrap>
      {usd !== null && texts.price(usd)} {state !== 'current' && <Tag kind="wait">{texts.priceStates[state]}</Tag>}
    </Nowrap>
  );
}

function tripWords(region: Region): string {
  const ms = medianMs(region);
  return ms === undefined ? t.common.unknown : milliseconds(ms);
}

/** The bucket bound that contains the median round trip. Undefined: nothing was measured. */
function medianMs({ round_trips: trips }: Region): number | undefined {
  if (trips === null) return undefined;
  const half = sum(trips.counts) / 2;
  if (half === 0) return undefined;
  let below = 0;
  const at = trips.counts.findIndex((one) => {
    below += one;
    return below >= half;
  });
  return 1_000 * (trips.at_most_s[at] ?? trips.at_most_s.at(-1) ?? 0);
}

export function RegionTable({ regions }: { regions: readonly Region[] }) {
  return (
    <DataTable label={texts.regions} rows={regions} columns={REGION_COLUMNS} rowId={({ region }) => nameOf(region)} />
  );
}

interface Row {
  model: string;
  cells: ReadonlyMap<string, Cell>;
}

interface Cell {
  /**
   * Planned share of the model's responses, in percent; undefined: no plan applies to the model, or there were no
   * responses.
   */
  planned: number | undefined;
  went: number | undefined;
  serving: number;
  warm: number | undefined;
}

interface FlowProps {
  regions: readonly Region[];
  plan: RegionsPlan | undefined;
  since: ResponseCounts;
}

/** A row for each model, a column for each region. */
export function FlowMatrix({ regions, plan, since }: FlowProps) {
  const rows = useMemo(() => rowsOf({ regions, plan, since }), [regions, plan, since]);
  const columns = useMemo<Column<Row>[]>(
    () => [
      { id: 'model', header: texts.model, value: ({ model }) => model, cell: ({ model }) => model },
      ...regions.map(({ region }) => ({
        id: `region ${region}`,
        header: nameOf(region),
        cell: ({ cells }: Row) => <Flow of={cells.get(region)} />,
      })),
    ],
    [regions],
  );
  if (rows.length === 0) return <Empty>{t.common.none}</Empty>;
  return <DataTable label={texts.matrix} rows={rows} columns={columns} rowId={({ model }) => model} />;
}

function rowsOf({ regions, plan, since }: FlowProps): Row[] {
  const names = [...new Set(regions.flatMap(({ models }) => models.map(({ model }) => model)))].sort();
  return names.map((model) => {
    const shares = plan?.holds === true ? plan.models[model]?.shares : undefined;
    const flows = regions.map(({ region, models }) => {
      const answered = models.find((one) => one.model === model)?.answered ?? 0;
      return Math.max(0, answered - (since.get(countKey(region, model)) ?? 0));
    });
    const all = sum(flows);
    const cells = regions.map(({ region, models }, at): [string, Cell] => [
      region,
      {
        planned: shares === undefined ? undefined : 100 * (shares[region] ?? 0),
        went: all === 0 ? undefined : (100 * (flows[at] ?? 0)) / all,
        serving: models.find((one) => one.model === model)?.replicas ?? 0,
        warm:
          plan?.holds === true
            ? plan.warm.find((one) => one.model === model && one.region === region)?.replicas
            : undefined,
      },
    ]);
    return { model, cells: new Map(cells) };
  });
}

function Flow({ of }: { of: Cell | undefined }) {
  if (of === undefined) return null;
  const { planned, went, serving, warm } = of;
  const words = [
    planned !== undefined && texts.planned(Math.round(planned)),
    went !== undefined && texts.went(Math.round(went)),
    texts.serving(serving),
    warm !== undefined && texts.warm(warm),
  ];
  return (
    <span className="flex flex-col">
      {words.map((word) => typeof word === 'string' && <Nowrap key={word}>{word}</Nowrap>)}
    </span>
  );
}
