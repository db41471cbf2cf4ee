import { departureCause } from '../../../shared/lattice/departure-cause.ts';
import type { Node } from '../../api/schemas.ts';
import { dateTime, gpus, timeLeft } from '../../parts/format.ts';
import { useMinute } from '../../parts/use-minute.ts';
import { t } from '../../texts/index.ts';
import { Facts } from '../../ui/page.tsx';

const texts = t.nodes.node;

export function NodeFactList({ node }: { node: Node }) {
  const { session, connected, provider, cluster, region, tier, hardware, models, job } = node;
  const { facts } = texts;
  const now = useMinute();
  const isHere = node.state !== 'LEFT';
  return (
    <Facts>
      <dt>{facts.id}</dt>
      <dd>
        <code>{session}</code>
      </dd>
      <dt>{facts.where}</dt>
      <dd>
        {[provider, cluster, ...(region === undefined ? [] : [region])].join(', ')} ({tier})
        {isHere && `, ${connected ? texts.connected : texts.elsewhere}`}
      </dd>
      <dt>{facts.hardware}</dt>
      <dd>
        {gpus(hardware.gpus)}; {texts.machine(hardware.cpus, Math.round(hardware.memory_mib / 1024))}
      </dd>
      <dt>{facts.models}</dt>
      <dd>{models.map((one) => (isHere ? `${one.id} (${one.state})` : one.id)).join(', ') || t.nodes.idle}</dd>
      <dt>{facts.job}</dt>
      <dd>{job === undefined ? t.common.none : texts.job(job.id, job.partition)}</dd>
      {job?.ends_at !== undefined && (
        <>
          <dt>{facts.ends}</dt>
          <dd>
            {dateTime(job.ends_at)} ({timeLeft(job.ends_at, now)})
          </dd>
        </>
      )}
      <dt>{facts.agent}</dt>
      <dd>{node.agent_version}</dd>
      <dt>{facts.joined}</dt>
      <dd>{dateTime(node.joined_at)}</dd>
      {node.state === 'LEFT' && (
        <>
          <dt>{facts.left}</dt>
          <dd>{because(node.leaving ?? null)}</dd>
        </>
      )}
    </Facts>
  );
}

/** The cause in words, and the original text of the agent or the gateway. */
export function because(reason: string | null): string {
  const cause = texts.causes[departureCause(reason)];
  return reason === null ? cause : texts.because(cause, reason);
}
