import { UsageError } from '../../shared/command-line/index.ts';

const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Above this (2^31 - 1 ms) setTimeout fires immediately, so no duration may exceed it. */
const LONGEST_DURATION_MS = 2_147_483_647;

/**
 * `90s`, `2m`, `1h30m`, `500ms`, `0` → milliseconds. A bare number is refused, because Slurm reads `--time=60` as
 * minutes and `--signal=@60` as seconds.
 */
export function parseDuration(text: string, name: string): number {
  if (text === '0') return 0;
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(text)) {
    const hint = /^\d+$/.test(text) ? `; write ${text}s or ${text}m` : '';
    throw new UsageError(`${name}: "${text}" is not a duration such as 90s, 2m or 1h30m${hint}`);
  }
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(amount) * (UNIT_MS[unit ?? ''] ?? 0);
  }
  if (total > LONGEST_DURATION_MS) throw new UsageError(`${name}: "${text}" is longer than 24 days`);
  return Math.round(total);
}

/** 7,384,000 → `2h3m4s`: for display, never parsed again. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h > 0) return `${h}h${m}m`;
  return m > 0 ? `${m}m${s}s` : `${s}s`;
}
