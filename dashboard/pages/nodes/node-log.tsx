import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { Problem, send } from '../../api/client.ts';
import { t } from '../../texts/index.ts';
import { Copy } from '../../ui/copy.tsx';
import { Empty, Failure, Loading } from '../../ui/feedback.tsx';
import type { Telemetry } from './use-node-samples.ts';

const texts = t.nodes.node;

/** A log that is scrolled to within this many pixels of its end follows new lines. */
const END_PX = 24;

interface NodeLogProps {
  session: string;
  telemetry: Telemetry | undefined;
  error: Error | null;
  /** True if the agent is reachable. */
  isLive: boolean;
}

/** The engine's output; for a failed node, its last lines. */
export function NodeLog({ session, telemetry, error, isLive }: NodeLogProps) {
  const last = useQuery({
    queryKey: ['last-log', session, isLive],
    queryFn: ({ signal }) => readLastLog(session, signal),
    enabled: !isLive || error !== null,
  });
  if (isLive && telemetry?.withheld !== undefined) return <Empty>{texts.withheld[telemetry.withheld]}</Empty>;
  if (isLive && telemetry !== undefined)
    return telemetry.log === '' ? <Empty>{texts.silent}</Empty> : <Log text={telemetry.log} about={texts.logLive} />;
  if (isLive && error === null) return <Loading />;
  if (last.data != null) return <Log text={last.data} about={texts.logLast} />;
  if (last.error) return <Failure error={last.error} />;
  return isLive && error !== null ? <Failure error={error} /> : <Empty>{texts.noLog}</Empty>;
}

/** Reads the last log of a failed node; null: the gateway has none. */
async function readLastLog(session: string, signal: AbortSignal): Promise<string | null> {
  try {
    return await (await send(`/admin/nodes/${session}/logs`, { signal })).text();
  } catch (cause) {
    if (cause instanceof Problem && cause.status === 404) return null;
    throw cause;
  }
}

/** Follows new lines while its end is visible. */
function Log({ text, about }: { text: string; about: string }) {
  const ref = useRef<HTMLElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each new text moves the end
  useEffect(() => {
    const box = ref.current;
    if (box !== null && isAtEnd.current) box.scrollTop = box.scrollHeight;
  }, [text]);
  return (
    <>
      <p className="flex flex-wrap items-center justify-between gap-3 text-muted text-sm">
        {about}
        <Copy text={text} />
      </p>
      <section
        ref={ref}
        aria-label={texts.log}
        // Makes the scrolling region reachable by keyboard.
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < END_PX;
        }}
        className="max-h-96 overflow-auto rounded-md border border-line bg-sunken"
      >
        <pre className="w-max min-w-full p-4 font-mono text-sm leading-relaxed">{text}</pre>
      </section>
    </>
  );
}
