import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { listOf } from '../api/schemas.ts';
import { exactTime, plural } from './format.ts';
import { Plot } from './plot.tsx';
import { Empty, More, Show, Tag, Wide } from './ui.tsx';
import { useLoad } from './use-load.ts';

/** What is asked for: the plot shows all of it, the table its newest. */
const EVENTS_MAX = 500;
const ROWS = 20;
/** Hundreds of nodes come and go at once: it is asked again so often at most. */
const AGAIN_MS = 1_000;

const eventSchema = z.object({
  id: z.number(),
  at: z.string(),
  session: z.string(),
  node: z.nullable(z.string()),
  provider: z.string(),
  cluster: z.string(),
  event: z.enum(['join', 'serving', 'down', 'suspected', 'trusted', 'left']),
  reason: z.nullable(z.string()),
});
type NodeEvent = z.infer<typeof eventSchema>;
const historySchema = listOf(eventSchema);

/** What became of nodes, from before the page was opened too. `here`: nodes now, of those that the reader sees the history of. */
export function NodeHistory({ moves, here }: { moves: number; here: number }) {
  const [history, again] = useLoad(
    (signal) => ask(historySchema, `/admin/nodes/history?limit=${EVENTS_MAX}`, signal),
    [],
  );
  useAfter(moves, again);
  return (
    <Show of={history} retry={again}>
      {({ data }) =>
        data.length === 0 ? (
          <Empty>No node has come or gone in the last 30 days.</Empty>
        ) : (
          <Told events={data} here={here} />
        )
      }
    </Show>
  );
}

/** Calls `again` a moment after `moves` changed, once for all changes of that moment. */
function useAfter(moves: number, again: () => void): void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const seen = useRef(moves);
  useEffect(() => {
    if (seen.current === moves) return;
    seen.current = moves;
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      again();
    }, AGAIN_MS);
  }, [moves, again]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

function Told({ events, here }: { events: readonly NodeEvent[]; here: number }) {
  const [rows, setRows] = useState(ROWS);
  const { times, lines } = useMemo(() => nodesOverTime(events, here), [events, here]);
  return (
    <>
      <Plot title="Over time" about={plural(events.length, 'event')} times={times} lines={lines} stepped height={160} />
      <Wide label="Joins and losses">
        <table>
          <thead>
            <tr>
              <th>When</th>
              <th>What</th>
              <th>Session</th>
              <th>Machine</th>
              <th>Provider</th>
              <th>Cluster</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>
            {events.slice(0, rows).map((one) => (
              <tr key={one.id}>
                <td>
                  <time dateTime={one.at}>{exactTime(one.at)}</time>
                </td>
                <td>{TAGS[one.event]}</td>
                <td>
                  <code>{one.session.slice(0, 8)}</code>
                </td>
                <td>{one.node ?? '–'}</td>
                <td>{one.provider}</td>
                <td>{one.cluster}</td>
                <td>{one.reason ?? ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {events.length > rows && <More onClick={() => setRows(EVENTS_MAX)} />}
    </>
  );
}

const TAGS: Readonly<Record<NodeEvent['event'], preact.JSX.Element>> = {
  join: <Tag kind="wait">joined</Tag>,
  serving: <Tag kind="good">serving</Tag>,
  down: <Tag kind="plain">down</Tag>,
  suspected: <Tag kind="bad">silent</Tag>,
  trusted: <Tag kind="good">heard again</Tag>,
  left: <Tag kind="plain">left</Tag>,
};

/** How many there were after each join and loss, counted back from those that are `here`. `events`: the newest first. */
function nodesOverTime(
  events: readonly NodeEvent[],
  here: number,
): { times: number[]; lines: { label: string; values: number[] }[] } {
  const times = [Date.now() / 1000];
  const values = [here];
  let count = here;
  for (const { event, at } of events) {
    if (event !== 'join' && event !== 'left') continue;
    times.push(Date.parse(at) / 1000);
    values.push(count);
    count = Math.max(0, count + (event === 'join' ? -1 : 1));
  }
  return { times: times.reverse(), lines: [{ label: 'nodes', values: values.reverse() }] };
}
