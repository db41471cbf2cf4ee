import { useEffect } from 'preact/hooks';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { dateTime } from './format.ts';
import { Failure, Tag } from './ui.tsx';
import { useLoad } from './use-load.ts';

const AGAIN_MS = 2_000;

const nowSchema = z.object({
  in_flight: z.nullable(z.number()),
  load: z.nullable(z.object({ running: z.number(), waiting: z.number(), kv_use: z.nullable(z.number()) })),
  breaker: z.object({ state: z.enum(['closed', 'open', 'half-open']) }),
  last_errors: z.array(z.object({ at: z.string(), code: z.string(), status: z.number(), request_id: z.string() })),
});
type Now = z.infer<typeof nowSchema>;

/** What runs at a node at this moment, asked again while it is shown. */
export function NodeNow({ session }: { session: string }) {
  const [loaded, again] = useLoad((signal) => ask(nowSchema, `/admin/nodes/${session}`, signal), [session]);
  useEffect(() => {
    const timer = setInterval(again, AGAIN_MS);
    return () => clearInterval(timer);
  }, [again]);
  if (loaded.state === 'loading') return null;
  if (loaded.state === 'failed') return <Failure error={loaded.error} />;
  return <Shown now={loaded.value} />;
}

function Shown({ now }: { now: Now }) {
  const { in_flight, load, breaker, last_errors } = now;
  return (
    <>
      <dl class="details">
        <dt>Running</dt>
        <dd>{in_flight === null ? 'not known: nothing was heard lately' : `${in_flight} from this gateway`}</dd>
        <dt>Engine</dt>
        <dd>{load === null ? '–' : engineLoad(load)}</dd>
        <dt>Breaker</dt>
        <dd>{breaker.state === 'closed' ? 'closed' : <Tag kind="bad">{breaker.state}: left alone for a while</Tag>}</dd>
      </dl>
      {last_errors.length > 0 && (
        <ul class="history" aria-label="Last errors">
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

function engineLoad({ running, waiting, kv_use }: NonNullable<Now['load']>): string {
  return `${running} running, ${waiting} waiting${kv_use === null ? '' : `, KV cache ${Math.round(100 * kv_use)} %`}`;
}
