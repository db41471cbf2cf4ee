import { useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { send, tell } from '../api/client.ts';
import type { Me, Node } from '../api/schemas.ts';
import { dateTime, gpus, plural } from './format.ts';
import { NodeNow } from './node-now.tsx';
import { NodeState } from './node-state.tsx';
import { Dialog, Empty, Failure } from './ui.tsx';
import { useAction } from './use-action.ts';

const drainedSchema = z.object({ running: z.number() });

interface DetailsProps {
  /** Undefined: it is gone. */
  node: Node | undefined;
  session: string;
  me: Me;
  close: () => void;
}

/** One node: what it is, what it does now, and what may be done with it. */
export function NodeDetails({ node, session, me, close }: DetailsProps) {
  const [log, setLog] = useState<string>();
  const [said, setSaid] = useState<string>();
  const { error, busy, act } = useAction<void>(() => undefined);
  const own = me.role === 'operator' || (me.provider !== null && node?.provider === me.provider);
  const isHere = node !== undefined && node.state !== 'LEFT';
  const readLog = async () => setLog(await (await send(`/admin/nodes/${session}/logs`)).text());
  const drain = async () => {
    const { running } = await tell(drainedSchema, 'POST', `/admin/nodes/${session}/drain`);
    setSaid(`It drains: ${plural(running, 'request')} to finish, then its agent and its engine end.`);
  };
  const end = async () => {
    await tell(z.unknown(), 'DELETE', `/admin/nodes/${session}`);
    close();
  };
  const sure = (question: string, work: () => Promise<void>) => {
    if (confirm(question)) act(work());
  };
  return (
    <Dialog title={`Node ${session.slice(0, 8)}`} close={close}>
      {node === undefined ? <Empty>It is gone.</Empty> : <Facts node={node} />}
      {isHere && own && <NodeNow session={session} />}
      {said !== undefined && <p role="status">{said}</p>}
      {error && <Failure error={error} />}
      {log !== undefined && (
        <pre tabIndex={0} class="log">
          {log || 'It left no log.'}
        </pre>
      )}
      <form method="dialog" class="row">
        {own && (
          <button type="button" disabled={busy} onClick={() => act(readLog())}>
            Last words of its engine
          </button>
        )}
        {own && isHere && (
          <button
            type="button"
            disabled={busy || said !== undefined}
            onClick={() =>
              sure(
                'Drain this node? It takes nothing new, finishes what runs, and then its agent and its engine end. Nobody here can start them again.',
                drain,
              )
            }
          >
            Drain
          </button>
        )}
        {me.role === 'operator' && isHere && (
          <button
            type="button"
            disabled={busy}
            onClick={() =>
              sure('End this session? Its agent comes back as a new one while its join token is good.', end)
            }
          >
            End session
          </button>
        )}
        <button type="submit">Close</button>
      </form>
    </Dialog>
  );
}

function Facts({ node }: { node: Node }) {
  const { session, connected, provider, cluster, region, tier, hardware, models, job } = node;
  return (
    <dl class="details">
      <dt>Session</dt>
      <dd>
        <code>{session}</code>
      </dd>
      <dt>State</dt>
      <dd>
        <NodeState node={node} /> {connected ? 'connected' : 'no tunnel to this gateway'}
      </dd>
      <dt>Where</dt>
      <dd>
        {provider}, {cluster}
        {region === undefined ? '' : `, ${region}`} ({tier})
      </dd>
      <dt>Hardware</dt>
      <dd>
        {gpus(hardware.gpus)}; {hardware.cpus} CPUs, {Math.round(hardware.memory_mib / 1024)} GiB
      </dd>
      <dt>Models</dt>
      <dd>{models.map(({ id, state }) => `${id} (${state})`).join(', ') || 'idle'}</dd>
      <dt>Job</dt>
      <dd>{job === undefined ? '–' : `${job.id} in ${job.partition ?? '–'}, ends ${dateTime(job.ends_at)}`}</dd>
      <dt>Agent</dt>
      <dd>{node.agent_version}</dd>
      <dt>Joined</dt>
      <dd>{dateTime(node.joined_at)}</dd>
    </dl>
  );
}
