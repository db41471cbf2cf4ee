/** What `util.parseArgs` of Node says of a command line, in words of ours: its own explain how to write a positional argument. */

const UNKNOWN = /^Unknown option '([^']*)'/;
const POSITIONAL = /^Unexpected argument '([^']*)'/;
const MISSING = /^Option '([^' <]*)[^']*' argument (?:missing|is ambiguous)/;
const SURPLUS = /^Option '([^' <]*)[^']*' does not take an argument/;

/** The words for an error of `parseArgs`; undefined where it is another one. */
export function wrongUse(error: unknown): string | undefined {
  if (!(error instanceof TypeError) || !('code' in error) || !String(error.code).startsWith('ERR_PARSE_ARGS'))
    return undefined;
  const said = (pattern: RegExp) => pattern.exec(error.message)?.[1];
  const unknown = said(UNKNOWN);
  if (unknown !== undefined) return `there is no flag ${unknown} here`;
  const word = said(POSITIONAL);
  if (word !== undefined) return `"${word}" is one word too many`;
  const missing = said(MISSING);
  if (missing !== undefined) return `${missing} needs a value`;
  const surplus = said(SURPLUS);
  if (surplus !== undefined) return `${surplus} takes no value`;
  return error.message;
}
