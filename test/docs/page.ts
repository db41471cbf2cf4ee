/**
 * A page of docs/ with commands that tests run: its fenced blocks, in order. A comment before a block, which a reader
 * does not see, states special needs:
 *
 *     <!-- run: yours -->                  the reader sets these names; a test exports its own values for them
 *     <!-- run: stays until REGEX -->      runs on in another terminal; the next block follows when its output matches
 *     <!-- run: again until REGEX -->      the same, after Ctrl-C to the last terminal that runs the same program
 *     <!-- run: file NAME -->              not a command: the block is saved under this name
 *     <!-- run: needs WHAT -->             runs only if WHAT is available; the text around it says so too
 *     <!-- run: by FILE -->                this test file runs it; it is not run here
 *
 * A `text` block after a `sh` block shows the output; `…` in it matches anything.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../support/where.ts';

export type Step =
  | { kind: 'run' | 'yours'; line: number; code: string; needs?: string; shows: string[] }
  | { kind: 'stays' | 'again'; line: number; code: string; until: RegExp }
  | { kind: 'file' | 'by'; line: number; code: string; name: string };

interface Block {
  language: string;
  code: string;
  line: number;
  mark: string | undefined;
}

export function stepsOf(page: string): Step[] {
  const steps: Step[] = [];
  for (const block of blocksOf(readFileSync(join(ROOT, page), 'utf8'))) {
    const { language, line } = block;
    const last = steps.at(-1);
    if (language === 'text' && last?.kind === 'run') last.shows.push(...block.code.split('\n'));
    else if (language === 'sh' || block.mark !== undefined) steps.push(stepOf(block, page));
    else throw new Error(`${page}:${line}: nothing runs this ${language || 'unnamed'} block`);
  }
  return steps;
}

/** The block of the page that is saved under this name. @throws Error if there is none */
export function fileOf(page: string, name: string): string {
  const block = blocksOf(readFileSync(join(ROOT, page), 'utf8')).find(({ mark }) => mark === `file ${name}`);
  if (block === undefined) throw new Error(`${page} has no file ${name}`);
  return `${block.code}\n`;
}

function stepOf({ code, line, mark = '', language }: Block, page: string): Step {
  const [, kind = '', , rest = ''] = /^(\w*)( (?:until )?(.*))?$/.exec(mark) ?? [];
  switch (kind) {
    case '':
      return { kind: 'run', line, code, shows: [] };
    case 'needs':
      return { kind: 'run', line, code, needs: rest, shows: [] };
    case 'yours':
      return { kind, line, code, shows: [] };
    case 'stays':
    case 'again':
      return { kind, line, code, until: new RegExp(rest) };
    case 'file':
    case 'by':
      return { kind, line, code, name: rest };
    default:
      throw new Error(`${page}:${line}: "${mark}" before this ${language} block means nothing`);
  }
}

function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open: Block | undefined;
  let mark: string | undefined;
  for (const [at, line] of text.split('\n').entries()) {
    const fence = /^```(\w*)/.exec(line);
    if (open !== undefined) {
      if (fence === null) {
        open.code += `${open.code === '' ? '' : '\n'}${line}`;
        continue;
      }
      blocks.push(open);
      open = undefined;
    } else if (fence !== null) {
      open = { language: fence[1] ?? '', code: '', line: at + 1, mark };
      mark = undefined;
    } else if (line.trim() !== '') {
      mark = /^<!-- run: (.*) -->$/.exec(line)?.[1];
    }
  }
  return blocks;
}

/** The names that `export NAME=…` lines of a block set. */
export function namesOf(code: string): string[] {
  return [...code.matchAll(/^export (\w+)=/gm)].map(([, name = '']) => name);
}
