/** Quoting for the shell of the other machine. */

/** Quotes a text with single quotes, which csh and fish read in the same way. */
export function shellQuoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * The command that runs a script in a login shell of bash, as a terminal session does: many sites put Slurm and modules
 * on the PATH only there.
 */
export function loginShell(script: string): string {
  return `exec bash -lc ${shellQuoted(script)}`;
}
