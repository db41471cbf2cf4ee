/** Schemas of configuration values that need more checks than a string. */
import * as z from 'zod';
import { durationMs, TIMER_MAX_MS } from '../../shared/text/duration.ts';

export const durationSchema = z.string().transform((text, context) => {
  const ms = durationMs(text);
  if (ms !== undefined && ms <= TIMER_MAX_MS) return ms;
  context.addIssue({ code: 'custom', message: `"${text}" is not a duration such as 90s, 10m or 1h30m, at most 24d` });
  return z.NEVER;
});

/** Formats milliseconds for people: 7,384,000 is `2h3m`. */
export function formatMs(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  const [h, m, s] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h > 0) return m > 0 ? `${h}h${m}m` : `${h}h`;
  if (m > 0) return s > 0 ? `${m}m${s}s` : `${m}m`;
  return `${s}s`;
}

/** A value of one word. A value that Slurm, PBS or a shell would read as several words is refused, not cleaned. */
export const oneWordSchema = z
  .string()
  .regex(/^[\w.:,@/=+%&|*()[\]!<>-]{1,200}$/, 'must be one word without spaces and quotes');
/** A value of one line. A shell reads it quoted, and a line break would begin another line of the job's script. */
export const oneLineSchema = z
  .string()
  .min(1)
  .max(4_096)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused
  .regex(/^[^\u0000-\u001f\u007f]*$/, 'must not contain line breaks or other control characters');
/** A path without blanks, commas and colons, which Apptainer and enroot read as the end of a path. */
export const directory = z
  .string()
  .regex(/^(~\/|\/)[^\s:,]{0,1000}$/, 'must be an absolute path without spaces, commas and colons');
export const slugSchema = z
  .string()
  .max(32)
  .regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/, 'must consist of lower-case letters, digits and single dashes, at most 32');
