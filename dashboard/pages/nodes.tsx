import { useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { send, tell } from '../api/client.ts';
import type { Node } from '../api/schemas.ts';
import type { World } from '../app.tsx';
import { dateTime, gpus, plural, timeLeft } from '../parts/format.ts';
import { NetworkMap } from '../parts/network-map.tsx';
import { NodeHistory } from '../parts/node-history.tsx';
import { NodeNow } from '../parts/node-now.tsx';
import { Dialog, Empty, Failure, Field, Tag, Wide } from '../parts/ui.tsx';
import { useMinute } from '../parts/use-minute.ts';

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
      {all.length === 0 ? (
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
      {all.length > rows && (
        <button type="button" onClick={() => setRows(rows + 10 * ROWS)}>
          Show more
        </button>
      )}
      <h2>Joins and losses</h2>
      <NodeHistory moves={live.moves} here={mine} />
      {shown !== undefined && (
        <Details
          node={live.nodes.get(shown)}
          session={shown}
          operator={me.role === 'operator'}
          close={() => setShown(undefined)}
        />
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

export function State({ node }: { node: Node }) {
  if (node.state === 'LEFT') return <Tag kind="plain">left</Tag>;
  if (node.suspected) return <Tag kind="bad">silent</Tag>;
  if (node.state === 'SERVING') return <Tag kind="good">serving</Tag>;
  return node.state === 'JOIN' ? <Tag kind="wait">joining</Tag> : <Tag kind="bad">down</Tag>;
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
        <State node={node} />
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

function Details({
  node,
  session,
  operator,
  close,
}: {
  node: Node | undefined;
  session: string;
  operator: boolean;
  close: () => void;
}) {
  const [log, setLog] = useState<string>();
  const [error, setError] = useState<Error>();
  const tried = (work: Promise<void>) =>
    void work.catch((cause: unknown) => setError(cause instanceof Error ? cause : new Error(String(cause))));
  const readLog = async () => setLog(await (await send(`/admin/nodes/${session}/logs`)).text());
  const end = async () => {
    if (!confirm('End this session? Its agent comes back as a new one while its join token is good.')) return;
    await tell(z.unknown(), 'DELETE', `/admin/nodes/${session}`);
    close();
  };
  return (
    <Dialog title={`Node ${session.slice(0, 8)}`} close={close}>
      {node === undefined ? (
        <Empty>It is gone.</Empty>
      ) : (
        <dl class="details">
          <dt>Session</dt>
          <dd>
            <code>{session}</code>
          </dd>
          <dt>State</dt>
          <dd>
            <State node={node} /> {node.connected ? 'connected' : 'no tunnel to this gateway'}
          </dd>
          <dt>Where</dt>
          <dd>
            {node.provider}, {node.cluster}
            {node.region === undefined ? '' : `, ${node.region}`} ({node.tier})
          </dd>
          <dt>Hardware</dt>
          <dd>
            {gpus(node.hardware.gpus)}; {node.hardware.cpus} CPUs, {Math.round(node.hardware.memory_mib / 1024)} GiB
          </dd>
          <dt>Models</dt>
          <dd>{node.models.map(({ id, state }) => `${id} (${state})`).join(', ') || 'idle'}</dd>
          <dt>Job</dt>
          <dd>
            {node.job === undefined
              ? '–'
              : `${node.job.id} in ${node.job.partition ?? '–'}, ends ${dateTime(node.job.ends_at)}`}
          </dd>
          <dt>Agent</dt>
          <dd>{node.agent_version}</dd>
          <dt>Joined</dt>
          <dd>{dateTime(node.joined_at)}</dd>
        </dl>
      )}
      {node !== undefined && <NodeNow session={session} />}
      {error && <Failure error={error} />}
      {log !== undefined && (
        <pre tabIndex={0} class="log">
          {log || 'It left no log.'}
        </pre>
      )}
      <form method="dialog" class="row">
        <button type="button" onClick={() => tried(readLog())}>
          Last words of its engine
        </button>
        {operator && (
          <button type="button" onClick={() => tried(end())}>
            End session
          </button>
        )}
        <button type="submit">Close</button>
      </form>
    </Dialog>
  );
}
