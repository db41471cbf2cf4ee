import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { Node } from '../../api/schemas.ts';
import { DetailTitle } from '../../parts/detail-title.tsx';
import { NodeState } from '../../parts/node-state.tsx';
import { useLive, useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { Empty, Loading } from '../../ui/feedback.tsx';
import { Card, Page, Section } from '../../ui/page.tsx';
import { NodeFactList } from './node-facts.tsx';
import { NodeHistory } from './node-history.tsx';
import { NodeLog } from './node-log.tsx';
import { NodeNowFacts } from './node-now.tsx';
import { NodePlots } from './node-plots.tsx';
import { useNodeNow, useSamples, useTelemetry } from './use-node-samples.ts';

const texts = t.nodes.node;

/** One node: its facts, its current activity, its log, and actions on it. */
export function NodePage({ session }: { session: string }) {
  const me = useMe();
  const live = useLive();
  const node = live.nodes.get(session);
  const isOwn = me.role === 'operator' || (me.provider !== null && node?.provider === me.provider);
  return (
    <Page
      title={
        <DetailTitle href="/nodes" back={texts.back} state={node && <NodeState node={node} />}>
          {texts.title(session.slice(0, 8))}
        </DetailTitle>
      }
      actions={isOwn && <Actions session={session} node={node} isOperator={me.role === 'operator'} />}
    >
      {node === undefined ? (
        live.connection === 'connecting' ? (
          <Loading />
        ) : (
          <Empty>{texts.gone}</Empty>
        )
      ) : isOwn ? (
        <Observed node={node} />
      ) : (
        <Card>
          <NodeFactList node={node} />
        </Card>
      )}
      {isOwn && (
        <Section title={texts.reasons}>
          <NodeHistory moves={live.moves} session={session} />
        </Section>
      )}
    </Page>
  );
}

/** The part that only its provider and operators see. */
function Observed({ node }: { node: Node }) {
  const { session } = node;
  const isHere = node.state !== 'LEFT';
  const now = useNodeNow(session);
  const telemetry = useTelemetry(session, isHere && node.connected);
  const samples = useSamples(session, now.data, telemetry.data, now.dataUpdatedAt);
  return (
    <>
      <div className="grid gap-4 lg:grid-cols-2">
        <Card>
          <NodeFactList node={node} />
        </Card>
        <Card>
          <NodeNowFacts now={now.data} error={now.error} isHere={isHere} />
        </Card>
      </div>
      {isHere && (
        <Section title={texts.plots.title}>
          <NodePlots samples={samples} gpusTold={telemetry.data === undefined || telemetry.data.gpus !== null} />
        </Section>
      )}
      <Section title={texts.log}>
        <NodeLog
          session={session}
          telemetry={telemetry.data}
          error={telemetry.error}
          isLive={isHere && node.connected}
        />
      </Section>
    </>
  );
}

interface ActionsProps {
  session: string;
  node: Node | undefined;
  isOperator: boolean;
}

function Actions({ session, node, isOperator }: ActionsProps) {
  const [asked, setAsked] = useState<'drain' | 'end'>();
  const [running, setRunning] = useState<number>();
  if (node === undefined || node.state === 'LEFT') return null;
  const at = { params: { path: { session } } };
  const close = () => setAsked(undefined);
  const busy = node.models.map(({ id }) => id).join(', ');
  return (
    <>
      {running !== undefined && (
        <p role="status" className="self-center text-muted text-sm">
          {texts.draining(running)}
        </p>
      )}
      <Button disabled={running !== undefined} onClick={() => setAsked('drain')}>
        {texts.drain}
      </Button>
      {isOperator && (
        <Button className="text-bad!" onClick={() => setAsked('end')}>
          {texts.end}
        </Button>
      )}
      {asked === 'drain' && (
        <Confirm
          title={texts.drainTitle}
          action={texts.drain}
          act={async () => setRunning((await gateway.POST('/admin/nodes/{session}/drain', at)).data?.running ?? 0)}
          close={close}
        >
          <ol className="flex list-decimal flex-col gap-1 pl-5">
            {texts.drainSteps(busy).map((step) => (
              <li key={step}>{step}</li>
            ))}
          </ol>
        </Confirm>
      )}
      {asked === 'end' && (
        <Confirm
          title={texts.endTitle}
          action={texts.end}
          act={() => gateway.DELETE('/admin/nodes/{session}', at)}
          close={close}
        >
          {texts.endFollows}
        </Confirm>
      )}
    </>
  );
}
