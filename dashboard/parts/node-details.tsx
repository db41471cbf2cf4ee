import { useState } from 'react';
import * as z from 'zod/mini';
import { send, tell } from '../api/client.ts';
import type { Me, Node } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Empty, Failure } from '../ui/feedback.tsx';
import { Code, Facts } from '../ui/page.tsx';
import { useAction } from '../ui/use-action.ts';
import { dateTime, gpus } from './format.ts';
import { NodeNow } from './node-now.tsx';
import { NodeState } from './node-state.tsx';

const drainedSchema = z.object({ running: z.number() });

interface DetailsProps {
  /** Undefined: it is gone. */
  node: Node | undefined;
  session: string;
  me: Me;
  close: () => void;
}

const texts = t.nodes.node;

/** One node: what it is, what it does now, and what may be done with it. */
export function NodeDetails({ node, session, me, close }: DetailsProps) {
  const [log, setLog] = useState<string>();
  const [running, setRunning] = useState<number>();
  const [asked, setAsked] = useState<'drain' | 'end'>();
  const { error, busy, act } = useAction<void>(() => undefined);
  const own = me.role === 'operator' || (me.provider !== null && node?.provider === me.provider);
  const isHere = node !== undefined && node.state !== 'LEFT';
  const readLog = async () => setLog(await (await send(`/admin/nodes/${session}/logs`)).text());
  const drain = async () => setRunning((await tell(drainedSchema, 'POST', `/admin/nodes/${session}/drain`)).running);
  const end = async () => {
    await tell(z.unknown(), 'DELETE', `/admin/nodes/${session}`);
    close();
  };
  const buttons = own && (
    <>
      <Button disabled={busy} onClick={() => act(readLog())}>
        {texts.log}
      </Button>
      {isHere && (
        <Button disabled={busy || running !== undefined} onClick={() => setAsked('drain')}>
          {texts.drain}
        </Button>
      )}
      {me.role === 'operator' && isHere && (
        <Button kind="danger" disabled={busy} onClick={() => setAsked('end')}>
          {texts.end}
        </Button>
      )}
    </>
  );
  return (
    <Dialog title={texts.title(session.slice(0, 8))} close={close} footer={buttons || undefined}>
      <div className="flex flex-col gap-4">
        {node === undefined ? <Empty>{texts.gone}</Empty> : <NodeFacts node={node} />}
        {isHere && own && <NodeNow session={session} />}
        {running !== undefined && <p role="status">{texts.draining(running)}</p>}
        {error !== undefined && <Failure error={error} />}
        {log !== undefined && <Code label={texts.log}>{log || texts.noLog}</Code>}
      </div>
      {asked === 'drain' && (
        <Confirm title={texts.drainTitle} action={texts.drain} act={drain} close={() => setAsked(undefined)}>
          {texts.drainFollows}
        </Confirm>
      )}
      {asked === 'end' && (
        <Confirm title={texts.endTitle} action={texts.end} act={end} close={() => setAsked(undefined)}>
          {texts.endFollows}
        </Confirm>
      )}
    </Dialog>
  );
}

function NodeFacts({ node }: { node: Node }) {
  const { session, connected, provider, cluster, region, tier, hardware, models, job } = node;
  const { facts } = texts;
  return (
    <Facts>
      <dt>{facts.id}</dt>
      <dd>
        <code>{session}</code>
      </dd>
      <dt>{facts.state}</dt>
      <dd className="flex flex-wrap items-center gap-2">
        <NodeState node={node} /> <span>{connected ? texts.connected : texts.elsewhere}</span>
      </dd>
      <dt>{facts.where}</dt>
      <dd>
        {[provider, cluster, ...(region === undefined ? [] : [region])].join(', ')} ({tier})
      </dd>
      <dt>{facts.hardware}</dt>
      <dd>
        {gpus(hardware.gpus)}; {texts.machine(hardware.cpus, Math.round(hardware.memory_mib / 1024))}
      </dd>
      <dt>{facts.models}</dt>
      <dd>{models.map(({ id, state }) => `${id} (${state})`).join(', ') || t.nodes.idle}</dd>
      <dt>{facts.job}</dt>
      <dd>
        {job === undefined ? t.common.none : texts.job(job.id, job.partition ?? t.common.none, dateTime(job.ends_at))}
      </dd>
      <dt>{facts.agent}</dt>
      <dd>{node.agent_version}</dd>
      <dt>{facts.joined}</dt>
      <dd>{dateTime(node.joined_at)}</dd>
    </Facts>
  );
}
