/**
 * Why an open stream has no data yet, as an SSE comment. Clients ignore the comment. The dashboard shows it, and people
 * see it in the raw stream: `: otela queued 3rd`, `: otela queued in Slurm`, `: otela loading 60%`, `: otela starting`,
 * `: otela waking`.
 * A number is omitted if it is unknown.
 */
export type WaitReason =
  /** The request waits for a free node; `position` 1 is next. */
  | { reason: 'queued'; position?: number }
  /** The model's job waits in a scheduler's queue. */
  | { reason: 'queued'; where: string }
  /** A node is loading the model; `percent` is from 0 to 100. */
  | { reason: 'loading'; percent?: number }
  /** A node for the model is being started. */
  | { reason: 'starting' }
  /** A node's engine sleeps and is being woken. */
  | { reason: 'waking' };

/** The comment as sent, with the empty line that ends an event. */
export function waitComment(wait: WaitReason): string {
  return `: otela ${waitText(wait)}\n\n`;
}

/** The reason in English words, as in `queued 3rd`. */
export function waitText(wait: WaitReason): string {
  switch (wait.reason) {
    case 'queued':
      if ('where' in wait) return `queued in ${wait.where}`;
      return wait.position === undefined ? 'queued' : `queued ${wait.position}${suffixOf(wait.position)}`;
    case 'loading':
      return wait.percent === undefined ? 'loading' : `loading ${Math.round(wait.percent)}%`;
    case 'starting':
    case 'waking':
      return wait.reason;
  }
}

/** English ordinals: 1st, 2nd, 3rd, 4th, 11th, 21st. */
function suffixOf(n: number): string {
  if (n % 100 >= 11 && n % 100 <= 13) return 'th';
  return ['th', 'st', 'nd', 'rd'][n % 10] ?? 'th';
}

const COMMENT =
  /^otela (?:(queued)(?: ([1-9][0-9]{0,6})(?:st|nd|rd|th)| in ([A-Za-z][A-Za-z ]{0,30}))?|(loading)(?: (100|[0-9]{1,2})%)?|(starting|waking))$/;

/**
 * Parses a wait comment.
 * @param text the comment's line without its colon
 * @returns undefined for any other comment
 */
export function readWaitComment(text: string): WaitReason | undefined {
  const [, queued, position, where, loading, percent, starting] = COMMENT.exec(text.trim()) ?? [];
  if (where !== undefined) return { reason: 'queued', where };
  if (queued !== undefined) return { reason: 'queued', ...(position !== undefined && { position: Number(position) }) };
  if (loading !== undefined) return { reason: 'loading', ...(percent !== undefined && { percent: Number(percent) }) };
  return starting === undefined ? undefined : { reason: starting === 'waking' ? 'waking' : 'starting' };
}
