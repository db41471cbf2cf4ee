/** Formats quantities. */
import { t } from '../texts/index.ts';

const counts = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n: number): string => (n >= 100_000 ? compact.format(n) : counts.format(n));

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${counts.format(ms / 1000)} s`;
}

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB'] as const;

/** In powers of 1000, as limits are written. */
export function bytes(n: number): string {
  const power = Math.min(BYTE_UNITS.length - 1, n < 1 ? 0 : Math.floor(Math.log10(n) / 3));
  return `${counts.format(n / 1000 ** power)} ${BYTE_UNITS[power]}`;
}

/** An estimate or an age: in seconds, minutes or hours, always in one unit. */
export function about(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 100) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

/** The time until `iso`, rounded down; `over` if it has passed. */
export function timeLeft(iso: string | undefined, now: number): string {
  if (iso === undefined) return t.common.none;
  const minutes = Math.floor((Date.parse(iso) - now) / 60_000);
  if (minutes < 0) return t.nodes.over;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d`;
}

/** The order of a date is the browser's; its hours are 0 to 23, as in logs. */
const DAY = { hourCycle: 'h23' } as const;

export function dateTime(iso: string | null | undefined): string {
  if (iso === null || iso === undefined) return t.common.none;
  return new Date(iso).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short', ...DAY });
}

/** From Unix seconds, as in OpenAI's objects. */
export function dateTimeOf(seconds: number | null | undefined): string {
  return dateTime(seconds == null ? null : new Date(seconds * 1000).toISOString());
}

/** To the second, for recent days. */
export function exactTime(iso: string): string {
  const parts = {
    month: 'short',
    day: 'numeric',
    hour: 'numeric',
    minute: '2-digit',
    second: '2-digit',
    ...DAY,
  } as const;
  return new Date(iso).toLocaleString(undefined, parts);
}

/** `4 × GH200`, by class. */
export function gpus(list: readonly { class: string }[]): string {
  const by = new Map<string, number>();
  for (const { class: name } of list) by.set(name, (by.get(name) ?? 0) + 1);
  return [...by].map(([name, n]) => `${n} × ${name}`).join(', ') || t.nodes.noGpu;
}

/** A duration of the API for a field that shows seconds; empty: there is none. */
export function inSeconds(ms: number | null | undefined): string {
  return ms === null || ms === undefined ? '' : String(ms / 1000);
}

/** Converts back to milliseconds. */
export function secondsFrom(seconds: number | null): number | null {
  return seconds === null ? null : Math.round(seconds * 1000);
}
