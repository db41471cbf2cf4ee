import { UsageError } from '../../shared/command-line/index.ts';
import { durationMs, TIMER_MAX_MS } from '../../shared/text/duration.ts';

/** @throws UsageError if `text` is not a duration, or too long for a timer */
export function parseDuration(text: string, name: string): number {
  const ms = durationMs(text);
  if (ms === undefined) {
    const hint = /^\d+$/.test(text) ? `; write ${text}s or ${text}m` : '';
    throw new UsageError(`${name}: "${text}" is not a duration such as 90s, 2m or 1h30m${hint}`);
  }
  if (ms > TIMER_MAX_MS) throw new UsageError(`${name}: "${text}" is longer than 24 days`);
  return ms;
}

/** For example 7,384,000 → `2h3m4s`. For display only; never parsed again. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h > 0) return `${h}h${m}m`;
  return m > 0 ? `${m}m${s}s` : `${s}s`;
}
