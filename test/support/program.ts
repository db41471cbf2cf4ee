import { writeFileSync } from 'node:fs';

/** Writes an executable script; returns its path. */
export function program(path: string, text: string): string {
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}
