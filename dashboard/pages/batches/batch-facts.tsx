import type { ReactNode } from 'react';
import { type Batch, isOver } from '../../api/batches.ts';
import { count, dateTimeOf } from '../../parts/format.ts';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Facts } from '../../ui/page.tsx';
import { overSince } from './batch-state.tsx';
import { FIRST_LINE_ENDPOINTS } from './first-line.ts';
import { useOwnerName } from './use-owner-name.ts';

const { one: texts, form } = t.batches;

export function BatchFacts({ batch }: { batch: Batch }) {
  const ownerName = useOwnerName(useMe().role === 'operator');
  const { facts } = texts;
  const { usage, x_otela: ours } = batch;
  const endpoint = FIRST_LINE_ENDPOINTS.find((one) => one === batch.endpoint);
  return (
    <Facts>
      {ours.owner !== undefined && <Fact name={facts.owner}>{ownerName(ours.owner)}</Fact>}
      {batch.model != null && <Fact name={facts.model}>{batch.model}</Fact>}
      <Fact name={facts.endpoint}>{endpoint === undefined ? batch.endpoint : form.endpoints[endpoint]}</Fact>
      {!isOver(batch) && <Now batch={batch} />}
      {usage.input_tokens + usage.output_tokens > 0 && (
        <Fact name={facts.tokens}>{texts.tokens(count(usage.input_tokens), count(usage.output_tokens))}</Fact>
      )}
      {ours.requeued > 0 && <Fact name={facts.requeued}>{texts.requeued(ours.requeued)}</Fact>}
      <Fact name={facts.begun}>{dateTimeOf(batch.created_at)}</Fact>
      {isOver(batch) ? (
        <Fact name={facts.over}>{dateTimeOf(overSince(batch))}</Fact>
      ) : (
        <Fact name={facts.until}>{dateTimeOf(batch.expires_at)}</Fact>
      )}
      <Fact name={facts.id}>
        <code>{batch.id}</code>
      </Fact>
    </Facts>
  );
}

function Now({ batch: { x_otela: ours } }: { batch: Batch }) {
  const { facts } = texts;
  return (
    <>
      {ours.waiting_for !== null && <Fact name={facts.waits}>{ours.waiting_for}</Fact>}
      <Fact name={facts.rate}>
        {ours.lines_per_s > 0 ? texts.rate(count(ours.lines_per_s), count(ours.tokens_per_s)) : texts.noRate}
      </Fact>
      <Fact name={facts.nodes}>
        {ours.nodes > 0 ? texts.nodes(ours.nodes, count(ours.leased)) : ours.paused ? t.common.none : texts.noNodes}
      </Fact>
      {ours.contexts != null && (
        <Fact name={facts.loaded}>
          {texts.contexts(ours.contexts.ready, ours.contexts.loading, ours.contexts.stored)}
        </Fact>
      )}
      <Fact name={facts.end}>
        {ours.estimated_end === null || ours.paused ? texts.noEnd : dateTimeOf(ours.estimated_end)}
      </Fact>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}
