import { writeFileSync } from 'node:fs';

/** Writes a script that can be run; returns its path. */
export function program(path: string, text: string): string {
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}
