/** Formats quantities and times. */
import { t } from '../texts/index.ts';
import { dateLocale, language } from '../texts/language.ts';

const counts = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat(language, { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n: number): string => (n >= 100_000 ? compact.format(n) : counts.format(n));

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${counts.format(ms / 1000)} s`;
}

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB'] as const;

/** A number of bytes in powers of 1000, as limits are written. */
export function bytes(n: number): string {
  const power = Math.min(BYTE_UNITS.length - 1, n < 1 ? 0 : Math.floor(Math.log10(n) / 3));
  return `${counts.format(n / 1000 ** power)} ${BYTE_UNITS[power]}`;
}

/** An estimated duration or an age, in one unit: seconds, minutes or hours. */
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

/** The browser decides the order of day and month. Hours are 0 to 23, as in logs. */
const DAY = { hourCycle: 'h23' } as const;

export function dateTime(iso: string | null | undefined): string {
  if (iso === null || iso === undefined) return t.common.none;
  return new Date(iso).toLocaleString(dateLocale, { dateStyle: 'medium', timeStyle: 'short', ...DAY });
}

/** A time that is given in Unix seconds, as in OpenAI's objects. */
export function dateTimeOf(seconds: number | null | undefined): string {
  return dateTime(seconds == null ? null : new Date(seconds * 1000).toISOString());
}

/** A time to the second and without its year, for recent events. */
export function exactTime(iso: string): string {
  const parts = {
    month: 'short',
    day: 'numeric',
    hour: 'numeric',
    minute: '2-digit',
    second: '2-digit',
    ...DAY,
  } as const;
  return new Date(iso).toLocaleString(dateLocale, parts);
}

/** The number of GPUs of each class: `4 × GH200`. */
export function gpus(list: readonly { class: string }[]): string {
  const by = new Map<string, number>();
  for (const { class: name } of list) by.set(name, (by.get(name) ?? 0) + 1);
  return [...by].map(([name, n]) => `${n} × ${name}`).join(', ') || t.nodes.noGpu;
}

/** Converts milliseconds of the API to the text of a field in seconds; empty if there is no duration. */
export function inSeconds(ms: number | null | undefined): string {
  return ms === null || ms === undefined ? '' : String(ms / 1000);
}

/** Converts the seconds of a field to milliseconds for the API. */
export function secondsFrom(seconds: number | null): number | null {
  return seconds === null ? null : Math.round(seconds * 1000);
}
