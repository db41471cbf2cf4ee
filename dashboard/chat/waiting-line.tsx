import { useEffect, useState } from 'react';
import type { Waiting } from '../api/chat.ts';
import type { ModelLoad } from '../api/schemas.ts';
import type { CatalogueModel } from '../parts/model-catalog.ts';
import { t } from '../texts/index.ts';

/** A wait that is longer than this shows its duration. */
const CLOCK_AFTER_S = 2;

const texts = t.chat.waiting;

interface WaitingLineProps {
  waiting: Waiting;
  since: number;
  /** The requested model, if it is known. */
  model: CatalogueModel | undefined;
  load: ModelLoad | undefined;
}

/** Why no text has arrived yet, and for how long. */
export function WaitingLine({ waiting, since, model, load }: WaitingLineProps) {
  const seconds = useSeconds(since);
  return (
    <p role="status" className="flex items-center gap-2.5 py-1 text-muted">
      <span className="breathe size-2 rounded-full bg-accent" aria-hidden />
      <span>{wordsFor(waiting, model, load, seconds)}</span>
      {seconds >= CLOCK_AFTER_S && <span className="tabular-nums">{texts.since(seconds)}</span>}
    </p>
  );
}

/** The gateway's reason has priority. If there is none, the model's state explains most waits. */
function wordsFor(
  { reason, position, where, percent }: Waiting,
  model: CatalogueModel | undefined,
  load: ModelLoad | undefined,
  seconds: number,
): string {
  switch (reason) {
    case 'sent':
      return seconds < 1 ? texts.sent : wordsFor({ reason: 'queued' }, model, load, seconds);
    case 'queued': {
      if (where !== undefined) return texts.queuedIn(where);
      if (position !== undefined) return texts.queued(position);
      if (model !== undefined && model.serving === 0 && model.loading > 0) return texts.loading(undefined);
      if (load !== undefined && load.waiting > 0) return texts.queuedWith(load.waiting);
      return texts.queued(undefined);
    }
    case 'loading':
      return texts.loading(percent);
    case 'starting':
      return texts.starting;
    case 'waking':
      return texts.waking;
    case 'reading':
      return texts.reading;
  }
}

function useSeconds(since: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, Math.floor((now - since) / 1000));
}
