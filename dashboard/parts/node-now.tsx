import { useQuery } from '@tanstack/react-query';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { t } from '../texts/index.ts';
import { Failure, Tag } from '../ui/feedback.tsx';
import { Facts } from '../ui/page.tsx';
import { count, dateTime } from './format.ts';

const AGAIN_MS = 2_000;

const nowSchema = z.object({
  in_flight: z.nullable(z.number()),
  load: z.nullable(
    z.object({
      running: z.number(),
      waiting: z.number(),
      kv_use: z.nullable(z.number()),
      tokens_per_second: z.nullable(z.number()),
    }),
  ),
  tunnel: z.nullable(z.object({ heard_at: z.string() })),
  breaker: z.object({ state: z.enum(['closed', 'open', 'half-open']) }),
  last_errors: z.array(z.object({ at: z.string(), code: z.string(), status: z.number(), request_id: z.string() })),
});
type Now = z.infer<typeof nowSchema>;

const texts = t.nodes.node;

/** What runs at a node at this moment, asked again while it is shown. */
export function NodeNow({ session }: { session: string }) {
  const now = useQuery({
    queryKey: ['node', session],
    queryFn: ({ signal }) => ask(nowSchema, `/admin/nodes/${session}`, signal),
    refetchInterval: AGAIN_MS,
  });
  if (now.data === undefined) return now.error ? <Failure error={now.error} /> : null;
  return <Shown now={now.data} />;
}

function Shown({ now }: { now: Now }) {
  const { in_flight, load, tunnel, breaker, last_errors } = now;
  return (
    <>
      <Facts>
        <dt>{texts.facts.heard}</dt>
        <dd>{tunnel === null ? texts.notHeard : ago(tunnel.heard_at)}</dd>
        <dt>{texts.facts.running}</dt>
        <dd>{in_flight === null ? texts.notKnown : texts.running(in_flight)}</dd>
        <dt>{texts.facts.engine}</dt>
        <dd>{load === null ? t.common.none : engineLoad(load)}</dd>
        <dt>{texts.facts.requests}</dt>
        <dd>{breaker.state === 'closed' ? texts.sent : <Tag kind="bad">{texts.paused}</Tag>}</dd>
      </Facts>
      {last_errors.length > 0 && (
        <ul className="flex flex-col gap-1 text-sm" aria-label={texts.lastErrors}>
          {last_errors.map(({ at, code, status, request_id }) => (
            <li key={`${at}${request_id}`}>
              {dateTime(at)}: {code} {status > 0 && status} <code>{request_id.slice(0, 12)}</code>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** By the clock of this machine, which may be a little off. */
function ago(iso: string): string {
  return texts.ago(Math.max(0, Math.round((Date.now() - Date.parse(iso)) / 1000)));
}

function engineLoad({ running, waiting, kv_use, tokens_per_second }: NonNullable<Now['load']>): string {
  return [
    texts.load(running, waiting),
    ...(kv_use === null ? [] : [texts.cache(Math.round(100 * kv_use))]),
    ...(tokens_per_second === null ? [] : [texts.rate(count(tokens_per_second))]),
  ].join(', ');
}
