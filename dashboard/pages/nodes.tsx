import { useState } from 'preact/hooks';
import type { Node } from '../api/schemas.ts';
import { dateTime, gpus, plural, timeLeft } from '../parts/format.ts';
import { NetworkMap } from '../parts/network-map.tsx';
import { NodeDetails } from '../parts/node-details.tsx';
import { NodeHistory } from '../parts/node-history.tsx';
import { NodeState } from '../parts/node-state.tsx';
import { Empty, Field, Loading, More, Wide } from '../parts/ui.tsx';
import { useMinute } from '../parts/use-minute.ts';
import type { World } from './world.ts';

/** Rows that are drawn; who looks for one among thousands filters. */
const ROWS = 100;

export function NodesPage({ me, live }: World) {
  const [filter, setFilter] = useState('');
  const [rows, setRows] = useState(ROWS);
  const [shown, setShown] = useState<string>();
  const now = useMinute();
  const all = [...live.nodes.values()].filter((node) => node.state !== 'LEFT' && matches(node, filter));
  const mine = [...live.nodes.values()].filter(
    (node) => node.state !== 'LEFT' && (me.role === 'operator' || node.provider === me.provider),
  ).length;
  const left = [...live.nodes.values()].filter(({ state }) => state === 'LEFT').length;
  return (
    <>
      <h1>Nodes</h1>
      <NetworkMap nodes={all} />
      <Field label="Find" hint="Model, provider, cluster, GPU or session">
        {(id) => (
          <input id={id} type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        )}
      </Field>
      <p class="quiet">
        {plural(all.length, 'node')}
        {left > 0 && `; ${left} left in the last day`}
      </p>
      {all.length === 0 && live.connection === 'connecting' ? (
        <Loading />
      ) : all.length === 0 ? (
        <Empty>No node is here.</Empty>
      ) : (
        <Wide label="Nodes">
          <table>
            <thead>
              <tr>
                <th>Session</th>
                <th>State</th>
                <th>Provider</th>
                <th>Cluster</th>
                <th>Hardware</th>
                <th>Models</th>
                <th>Job ends in</th>
                <th>Changed</th>
              </tr>
            </thead>
            <tbody>
              {all.slice(0, rows).map((node) => (
                <Row key={node.session} node={node} now={now} open={() => setShown(node.session)} />
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      {all.length > rows && <More onClick={() => setRows(rows + 10 * ROWS)} />}
      <h2>Joins and losses</h2>
      <NodeHistory moves={live.moves} here={mine} />
      {shown !== undefined && (
        <NodeDetails node={live.nodes.get(shown)} session={shown} me={me} close={() => setShown(undefined)} />
      )}
    </>
  );
}

function matches(node: Node, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const text = [
    node.session,
    node.provider,
    node.cluster,
    node.region ?? '',
    ...node.models.map(({ id }) => id),
    gpus(node.hardware.gpus),
  ]
    .join(' ')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

function Row({ node, now, open }: { node: Node; now: number; open: () => void }) {
  return (
    <tr>
      <td>
        <button
          type="button"
          class="link"
          onClick={open}
          aria-label={`${node.session.slice(0, 8)}: details of this node`}
        >
          <code>{node.session.slice(0, 8)}</code>
        </button>
      </td>
      <td>
        <NodeState node={node} />
      </td>
      <td>{node.provider}</td>
      <td>{node.cluster}</td>
      <td>{gpus(node.hardware.gpus)}</td>
      <td>{node.models.map(({ id }) => id).join(', ') || 'idle'}</td>
      <td>{timeLeft(node.job?.ends_at, now)}</td>
      <td>{dateTime(node.updated_at)}</td>
    </tr>
  );
}
