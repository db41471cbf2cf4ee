import { exactTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Failure, Loading, Tag } from '../../ui/feedback.tsx';
import { Facts } from '../../ui/page.tsx';
import type { NodeNow } from './use-node-samples.ts';

const texts = t.nodes.node;

interface NodeNowFactsProps {
  now: NodeNow | undefined;
  error: Error | null;
  /** False: the node has left, and only its last errors are shown. */
  isHere: boolean;
}

/** A node's current activity and its last errors. */
export function NodeNowFacts({ now, error, isHere }: NodeNowFactsProps) {
  if (now === undefined) return error ? <Failure error={error} /> : <Loading />;
  const { in_flight, load, tunnel, breaker, last_errors, weights } = now;
  const { facts } = texts;
  return (
    <div className="flex flex-col gap-4">
      {isHere && (
        <Facts>
          <dt>{facts.heard}</dt>
          <dd>{tunnel === null ? texts.notHeard : ago(tunnel.heard_at)}</dd>
          <dt>{facts.running}</dt>
          <dd>{in_flight === null ? texts.notKnown : texts.running(in_flight)}</dd>
          <dt>{facts.engine}</dt>
          <dd>{load === null ? texts.notKnown : texts.load(load.running, load.waiting)}</dd>
          <dt>{facts.requests}</dt>
          <dd>
            {breaker.state === 'closed' ? (
              texts.sent
            ) : (
              <Tag kind="bad">{breaker.hangs ? texts.hangs : texts.paused}</Tag>
            )}
          </dd>
          {weights !== undefined && weights.length > 0 && (
            <>
              <dt>{facts.weights}</dt>
              <dd>
                <ul className="flex flex-col gap-1">
                  {weights.map(({ name, percent }) => (
                    <li key={name} className="flex flex-wrap items-center gap-2">
                      <span>{name}</span>
                      {percent < 100 && <progress max={100} value={percent} aria-label={name} className="w-24" />}
                      <span className="text-muted">{texts.percentHere(percent)}</span>
                    </li>
                  ))}
                </ul>
              </dd>
            </>
          )}
        </Facts>
      )}
      <div className="flex flex-col gap-1">
        <h3 className="font-medium text-sm">{texts.lastErrors}</h3>
        {last_errors.length === 0 ? (
          <p className="text-muted text-sm">{texts.noErrors}</p>
        ) : (
          <ul
            className="flex max-h-48 flex-col gap-1 overflow-y-auto text-sm"
            aria-label={texts.lastErrors}
            tabIndex={-1}
          >
            {last_errors.map(({ at, code, status, request_id }) => (
              <li key={`${at}${request_id}`}>
                <time dateTime={at} className="text-muted">
                  {exactTime(at)}
                </time>{' '}
                {t.errorCodes[code] ?? code} {status > 0 && texts.status(status)}{' '}
                <code className="text-muted text-xs">{request_id.slice(0, 12)}</code>
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}

/** How long ago a time was, by this machine's clock, which may be slightly off. */
function ago(iso: string): string {
  return texts.ago(Math.max(0, Math.round((Date.now() - Date.parse(iso)) / 1000)));
}
