/**
 * Why a stream that is open has no data yet, as a comment of server-sent events: clients ignore it, and people who watch the wire or use
 * the dashboard see it. `: otela queued 3rd`, `: otela queued in Slurm`, `: otela loading 60%`, `: otela starting`; the number is left out where it is not known.
 */
export type Wait =
  /** For a free node; `position` 1 is next. */
  | { reason: 'queued'; position?: number }
  /** Its model's job is in a scheduler's queue. */
  | { reason: 'queued'; where: string }
  /** A node loads the model; `percent` 0 to 100. */
  | { reason: 'loading'; percent?: number }
  /** A node for the model is being started. */
  | { reason: 'starting' };

/** As it goes over the wire, with the empty line that ends an event. */
export function waitComment(wait: Wait): string {
  return `: otela ${wordsOf(wait)}\n\n`;
}

function wordsOf(wait: Wait): string {
  switch (wait.reason) {
    case 'queued':
      if ('where' in wait) return `queued in ${wait.where}`;
      return wait.position === undefined ? 'queued' : `queued ${wait.position}${suffixOf(wait.position)}`;
    case 'loading':
      return wait.percent === undefined ? 'loading' : `loading ${Math.round(wait.percent)}%`;
    case 'starting':
      return 'starting';
  }
}

/** English ordinals: 1st, 2nd, 3rd, 4th, 11th, 21st. */
function suffixOf(n: number): string {
  if (n % 100 >= 11 && n % 100 <= 13) return 'th';
  return ['th', 'st', 'nd', 'rd'][n % 10] ?? 'th';
}

const COMMENT =
  /^otela (?:(queued)(?: ([1-9][0-9]{0,6})(?:st|nd|rd|th)| in ([A-Za-z][A-Za-z ]{0,30}))?|(loading)(?: (100|[0-9]{1,2})%)?|(starting))$/;

/** `text`: a comment's line without its colon. Undefined: it says something else. */
export function readWaitComment(text: string): Wait | undefined {
  const [, queued, position, where, loading, percent, starting] = COMMENT.exec(text.trim()) ?? [];
  if (where !== undefined) return { reason: 'queued', where };
  if (queued !== undefined) return { reason: 'queued', ...(position !== undefined && { position: Number(position) }) };
  if (loading !== undefined) return { reason: 'loading', ...(percent !== undefined && { percent: Number(percent) }) };
  return starting === undefined ? undefined : { reason: 'starting' };
}
