/** Follows a page as a reader would: one terminal for commands that end, others for commands that keep running. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { Managed, type SpawnOptions } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';
import { namesOf, type Step, stepsOf } from './page.ts';

/** Installing packages and loading a model are the slowest steps on the pages. */
const BLOCK_MS = 120_000;

export interface Place extends Pick<SpawnOptions, 'uid' | 'gid'> {
  /** The reader's directory; empty, or with files that the page says the reader received. */
  cwd: string;
  env: Record<string, string>;
  /** The reader's own values. */
  yours: Record<string, string>;
  /** Available things of those that blocks need. */
  has: readonly string[];
  /** Text of the page, such as a fixed port, and its replacement. */
  replace?: Readonly<Record<string, string>>;
}

export interface Read {
  /** Output of blocks, by their line in the page. */
  printed: Map<number, string>;
  /** Blocks that did not run here: `page:line needs WHAT`. */
  skipped: string[];
  /** Commands that keep running, in the order of the page. */
  terminals: Managed[];
  /** The first word of the command in each terminal. */
  programs: Map<Managed, string>;
}

/**
 * Runs every block of a page. @throws Error with the block's line and its output, if one fails or prints something else
 */
export async function follow(page: string, place: Place): Promise<Read> {
  const shell = new Shell(place);
  const read: Read = { printed: new Map(), skipped: [], terminals: [], programs: new Map() };
  for (const step of stepsOf(page)) {
    for (const [word, other] of Object.entries(place.replace ?? {})) step.code = step.code.replaceAll(word, other);
    try {
      await take(step, page, place, shell, read);
    } catch (cause) {
      throw new Error(`${page}:${step.line}: ${errorText(cause)}`, { cause });
    }
  }
  await shell.close();
  return read;
}

async function take(step: Step, page: string, place: Place, shell: Shell, read: Read): Promise<void> {
  switch (step.kind) {
    case 'yours':
      return void (await shell.run(exportsOf(step.code, place.yours)));
    case 'by':
      return void expectScripts(step.code, step.name);
    case 'file':
      return writeFileSync(join(await shell.directory(), step.name), `${step.code}\n`, { mode: 0o644 });
    case 'stays':
    case 'again': {
      const program = programOf(step.code);
      const before = read.terminals.findLast((one) => read.programs.get(one) === program);
      if (step.kind === 'again' && before !== undefined) {
        before.signal('SIGINT', 'group');
        await before.end(BLOCK_MS);
      }
      const terminal = await shell.another(step.code);
      read.terminals.push(terminal);
      read.programs.set(terminal, program);
      await terminal.line(step.until, BLOCK_MS);
      return;
    }
    case 'run': {
      if (step.needs !== undefined && !place.has.includes(step.needs)) {
        read.skipped.push(`${page}:${step.line} needs ${step.needs}`);
        return;
      }
      const printed = await shell.run(step.code);
      read.printed.set(step.line, printed);
      const missing = firstMissing(step.shows, printed);
      if (missing !== undefined) throw new Error(`the page shows "${missing}"; printed was\n${printed}`);
    }
  }
}

function programOf(code: string): string {
  return code.trim().split(/\s/, 1)[0] ?? '';
}

/** Commands that another test file runs: they must be scripts of package.json, and the file must exist. */
function expectScripts(code: string, file: string): void {
  if (!existsSync(join(ROOT, file))) throw new Error(`there is no ${file}`);
  const { scripts } = z
    .object({ scripts: z.record(z.string(), z.string()) })
    .parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
  for (const line of code.split('\n')) {
    const [, name = ''] = /^npm ci && npm (?:run )?([\w:]+)(?: +#.*)?$/.exec(line) ?? [];
    if (scripts[name] === undefined) throw new Error(`"${line}" is no script of package.json`);
  }
}

function exportsOf(code: string, yours: Readonly<Record<string, string>>): string {
  return namesOf(code)
    .map((name) => {
      const value = yours[name];
      if (value === undefined) throw new Error(`the test has no value for ${name}`);
      return `export ${name}='${value}'`;
    })
    .join('\n');
}

/**
 * The first line that is missing in the output after the previous ones; `…` matches anything, and the number of spaces
 * does not matter.
 */
function firstMissing(shows: readonly string[], printed: string): string | undefined {
  let rest = printed;
  for (const line of shows) {
    const words = line.trim().split(/\s+/);
    if (line.trim() === '' || line.trim() === '…') continue;
    const pattern = words.map((word) => word.split('…').map(escaped).join('[^\\n]*?')).join('\\s+');
    const found = new RegExp(pattern).exec(rest);
    if (found === null) return line;
    rest = rest.slice(found.index + found[0].length);
  }
  return undefined;
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** A bash that keeps its variables from block to block, and ends at the first command that fails. */
class Shell {
  readonly #place: Place;
  readonly #bash: Managed;
  #blocks = 0;

  constructor(place: Place) {
    this.#place = place;
    this.#bash = this.#start(['--noprofile', '--norc', '-eu', '-o', 'pipefail'], { stdin: 'pipe' });
  }

  #start(args: string[], more: SpawnOptions = {}): Managed {
    const { cwd, env, uid, gid } = this.#place;
    const who = uid === undefined ? {} : { uid, gid: gid ?? uid };
    return new Managed(['bash', ...args], { label: 'a terminal', cwd, env, ...who, ...more });
  }

  /** Returns the output of stdout and stderr. */
  async run(code: string): Promise<string> {
    const file = this.#file(code);
    const printed = `${file}.out`;
    this.#bash.child.stdin?.write(`source '${file}' </dev/null >'${printed}' 2>&1; echo '${file} is over'\n`);
    try {
      await this.#bash.line(new RegExp(`${escaped(file)} is over`), BLOCK_MS);
    } catch (cause) {
      throw new Error(`failed, having printed\n${readFileSync(printed, 'utf8')}`, { cause });
    }
    return readFileSync(printed, 'utf8');
  }

  async directory(): Promise<string> {
    return (await this.run('pwd')).trim();
  }

  /** Another terminal in the same directory, with the same variables. */
  async another(code: string): Promise<Managed> {
    const variables = await this.run('export -p');
    const file = this.#file(`${variables}\ncd '${await this.directory()}'\n${code}`);
    return this.#start(['--noprofile', '--norc', '-e', file]);
  }

  #file(code: string): string {
    const file = join(this.#place.env.TMPDIR ?? this.#place.cwd, `block-${++this.#blocks}.sh`);
    writeFileSync(file, `${code}\n`, { mode: 0o644 });
    return file;
  }

  async close(): Promise<void> {
    this.#bash.child.stdin?.end();
    await this.#bash.end(BLOCK_MS);
  }
}
