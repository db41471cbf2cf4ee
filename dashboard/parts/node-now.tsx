import { useEffect } from 'preact/hooks';
import * as z from 'zod/mini';
import { ask } from '../api/client.ts';
import { count, dateTime, plural } from './format.ts';
import { Failure, Tag } from './ui.tsx';
import { useLoad } from './use-load.ts';

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
  const { in_flight, load, tunnel, breaker, last_errors } = now;
  return (
    <>
      <dl class="details">
        <dt>Heartbeat</dt>
        <dd>{tunnel === null ? 'none at this gateway' : `${ago(tunnel.heard_at)} ago`}</dd>
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

/** By the clock of this machine, which may be a little off. */
function ago(iso: string): string {
  return plural(Math.max(0, Math.round((Date.now() - Date.parse(iso)) / 1000)), 'second');
}

function engineLoad({ running, waiting, kv_use, tokens_per_second }: NonNullable<Now['load']>): string {
  const cache = kv_use === null ? '' : `, KV cache ${Math.round(100 * kv_use)} %`;
  return `${running} running, ${waiting} waiting${cache}${tokens_per_second === null ? '' : `, ${count(tokens_per_second)} tokens/s`}`;
}
