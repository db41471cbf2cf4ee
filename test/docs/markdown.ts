/** Reads the Markdown of this repository as a forge does: links, headings and their anchors. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { ROOT } from '../support/where.ts';

const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.wrangler', 'data', 'release', 'venv']);

/** Paths from the repository's root. */
export function markdownFiles(directory = ROOT): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    if (NOT_OURS.has(entry.name)) return [];
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return markdownFiles(path);
    return entry.name.endsWith('.md') ? [relative(ROOT, path)] : [];
  });
}

export function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** The text without fenced blocks; line numbers stay the same. */
function prose(text: string): string {
  let open = false;
  return text
    .split('\n')
    .map((line) => {
      const fence = line.startsWith('```');
      if (fence) open = !open;
      return open || fence ? '' : line;
    })
    .join('\n');
}

/** Targets in `](…)`, in `src="…"` and in reference definitions, outside code. */
export function linksOf(text: string): string[] {
  const plain = prose(text).replace(/`[^`\n]*`/g, '');
  return [
    ...[...plain.matchAll(/\]\(([^)\s]+)\)/g)],
    ...[...plain.matchAll(/(?:src|srcset|href)="([^"]+)"/g)],
    ...[...plain.matchAll(/^\[[^\]]+\]: (\S+)/gm)],
  ].map(([, target = '']) => target);
}

/**
 * Anchors in the forges' form: lower case, no punctuation, dashes for spaces; the second heading of the same name has
 * `-1`.
 */
export function anchorsOf(text: string): Set<string> {
  const seen = new Map<string, number>();
  const anchors = new Set<string>();
  for (const [, heading = ''] of prose(text).matchAll(/^#{1,6} (.+?)#*$/gm)) {
    const anchor = heading
      .trim()
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M} _-]/gu, '')
      .replaceAll(' ', '-');
    const before = seen.get(anchor) ?? 0;
    seen.set(anchor, before + 1);
    anchors.add(before === 0 ? anchor : `${anchor}-${before}`);
  }
  return anchors;
}
