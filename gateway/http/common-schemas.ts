/** Schemas of single fields. Each allows exactly the same values in the parser and in /openapi.json. */
import * as z from 'zod';

/** Schema of a record with at most `max` members. */
export function boundedRecord<Value extends z.ZodType>(key: z.ZodString, value: Value, max: number) {
  return z
    .record(key, value)
    .refine((members) => Object.keys(members).length <= max, `at most ${max} members`)
    .meta({ maxProperties: max });
}

const LABEL = '[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
/**
 * The last label of a host's name begins with a letter: with a digit it would be parsed as an IPv4 address (WHATWG URL
 * §3.5).
 */
const LAST_LABEL = '[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const LOOPBACK = '(localhost|127\\.0\\.0\\.1|\\[::1\\])';
const HOST = `((${LABEL}\\.){0,10}${LAST_LABEL}|${BYTE}(\\.${BYTE}){3}|\\[::1\\])`;
const PORT = '(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?';
const PATH = "(/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?";
const URL_MAX_CHARS = 512;

/** An http or https URL, as a pattern, because `new URL` accepts more than a JSON schema can express. */
export const httpUrlSchema = z
  .string()
  .max(URL_MAX_CHARS)
  .regex(new RegExp(`^https?://${HOST}${PORT}${PATH}$`), 'must be an http or https URL')
  .meta({ examples: ['https://gateway.example.org'] });

/** An https URL. http is only allowed for a service on the same machine. */
export const secureUrlSchema = z
  .string()
  .max(URL_MAX_CHARS)
  .regex(new RegExp(`^(https://${HOST}|http://${LOOPBACK})${PORT}${PATH}$`), 'must be an https URL')
  .meta({ examples: ['https://login.example.org'] });

/** An e-mail address as mail servers accept in practice; RFC 5321 allows more. */
export const emailSchema = z
  .string()
  .max(320)
  .regex(new RegExp(`^[A-Za-z0-9._%+-]{1,64}@(${LABEL}\\.){1,10}[A-Za-z]{2,63}$`), 'must be an e-mail address')
  .meta({ examples: ['ada@example.org'] });

const CONTROL = '\\x00-\\x1f\\x7f-\\x9f';
/**
 * Invisible characters, and characters that reverse the text around them, which make one name look like another.
 * Joiners are not in the list, because some scripts need them.
 */
const UNSEEN =
  '\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb' +
  // These are the characters themselves, not escapes in the pattern: generators of test data in Python also read it,
  // and Python writes such escapes differently.
  '\u{e0000}-\u{e0fff}';
const NOT_IN_NAMES = CONTROL + UNSEEN;
/**
 * Matches text without control and invisible characters. The pattern lists these characters, because generators of test
 * data do not understand \P{Cc}.
 */
export const CONTROL_FREE = new RegExp(`^[^${NOT_IN_NAMES}]*$`, 'u');
/**
 * A name of one line that a terminal can show: not blank, without control and invisible characters. Surrounding white
 * space is removed.
 */
export const displayNameSchema = z
  .string()
  .min(1)
  .max(200)
  .regex(
    new RegExp(`^[^${NOT_IN_NAMES}]*[^\\s${NOT_IN_NAMES}][^${NOT_IN_NAMES}]*$`, 'u'),
    'must be one line, and not blank',
  )
  .trim()
  .meta({ examples: ['Physics'] });
