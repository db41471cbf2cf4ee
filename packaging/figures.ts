/**
 * `npm run figures:house [-- --list]` measures the size of the code: handwritten product lines, long files and
 * functions, import cycles, names that two files export, and duplicate functions. `--list` lists them.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parseAst } from 'vite';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Folders that users install or run, without research/, tests, benches and docs. */
const PRODUCT = [
  'agent',
  'clients',
  'dashboard',
  'deploy',
  'factory',
  'gateway',
  'node',
  'packaging',
  'scheduler',
  'shared',
];
const FILE_LINES_MAX = 400;
const FUNCTION_LINES_MAX = 60;
/** Shorter functions are not reported as duplicates. */
const DUPLICATE_LINES_MIN = 6;
/** It names the classes of Durable Objects, as types only, and any folder may import it. */
const ENVIRONMENT = 'gateway/env.ts';

interface Fn {
  name: string;
  file: string;
  lines: number;
  body: string;
}

interface Source {
  file: string;
  lines: number;
  text: string;
  imports: { to: string; typeOnly: boolean }[];
  exports: string[];
  functions: Fn[];
}

interface Node {
  type: string;
  start: number;
  end: number;
  [field: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

const nameOf = (value: unknown): string | undefined =>
  isNode(value)
    ? typeof value.name === 'string'
      ? value.name
      : nameOf(value.id ?? value.key ?? value.exported)
    : undefined;

function* childrenOf(node: Node): Generator<Node> {
  for (const value of Object.values(node)) {
    if (isNode(value)) yield value;
    else if (Array.isArray(value)) yield* value.filter(isNode);
  }
}

/** Every function below `node`; an unnamed function gets the name of its variable. */
function* functionsOf(node: Node, text: string, file: string, called = 'default'): Generator<Fn> {
  const name = nameOf(node) ?? called;
  if (/^(Function(Declaration|Expression)|ArrowFunctionExpression)$/.test(node.type) && isNode(node.body)) {
    const lines = text.slice(node.start, node.end).split('\n').length;
    yield { name, file, lines, body: text.slice(node.body.start, node.body.end).replaceAll(/\s+/g, ' ') };
  }
  for (const child of childrenOf(node)) yield* functionsOf(child, text, file, name);
}

const linesOf = (text: string): number => text.split('\n').length - 1;

/** Exported names; destructured variables are left out. */
function exportsOf(node: Node): (string | undefined)[] {
  if (node.type !== 'ExportNamedDeclaration' || isNode(node.source)) return [];
  if (!isNode(node.declaration)) return Array.isArray(node.specifiers) ? node.specifiers.map(nameOf) : [];
  const { declarations } = node.declaration;
  return Array.isArray(declarations) ? declarations.map(nameOf) : [nameOf(node.declaration)];
}

function sourceOf(file: string, files: ReadonlySet<string>): Source {
  const text = readFileSync(join(ROOT, file), 'utf8');
  const program: unknown = parseAst(text, { lang: file.endsWith('x') ? 'tsx' : 'ts' }, file);
  if (!isNode(program)) throw new Error(`${file} cannot be parsed`);
  const body = [...childrenOf(program)];
  const imports = body.flatMap((node) => {
    const from = isNode(node.source) ? node.source.value : undefined;
    if (typeof from !== 'string' || !from.startsWith('.')) return [];
    const to = normalize(join(dirname(file), from));
    return files.has(to) ? [{ to, typeOnly: node.importKind === 'type' || node.exportKind === 'type' }] : [];
  });
  const exports = body.flatMap(exportsOf).filter((name) => name !== undefined);
  return { file, lines: linesOf(text), text, imports, exports, functions: [...functionsOf(program, text, file)] };
}

/** Groups of files that import each other, directly or through others (Tarjan). */
function cyclesOf(sources: readonly Source[], withTypes: boolean): string[][] {
  const below = new Map(
    sources.map(({ file, imports }) => [
      file,
      file === ENVIRONMENT ? [] : imports.filter(({ typeOnly }) => withTypes || !typeOnly).map(({ to }) => to),
    ]),
  );
  const [index, low, stack, found] = [
    new Map<string, number>(),
    new Map<string, number>(),
    [] as string[],
    [] as string[][],
  ];
  const visit = (file: string): number => {
    const own = index.size;
    index.set(file, own);
    let least = own;
    stack.push(file);
    for (const to of below.get(file) ?? []) {
      if (!index.has(to)) least = Math.min(least, visit(to));
      else if (stack.includes(to)) least = Math.min(least, index.get(to) ?? own);
    }
    low.set(file, least);
    if (least === own) {
      const group = stack.splice(stack.indexOf(file));
      if (group.length > 1) found.push(group);
    }
    return least;
  };
  for (const file of below.keys()) if (!index.has(file)) visit(file);
  return found;
}

/** Keys that occur in two or more files, with those files. */
function repeated<T>(items: readonly T[], key: (item: T) => string, file: (item: T) => string): [string, string[]][] {
  const by = new Map<string, Set<string>>();
  for (const item of items) by.set(key(item), (by.get(key(item)) ?? new Set()).add(file(item)));
  return [...by].filter(([, files]) => files.size > 1).map(([name, files]) => [name, [...files]]);
}

function tracked(): string[] {
  const listed = execFileSync('git', ['ls-files', ...PRODUCT], { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 24 });
  return listed.split('\n').filter((file) => /\.(tsx?|jsx?|py|css)$/.test(file));
}

function main(): void {
  const { values } = parseArgs({ options: { list: { type: 'boolean', default: false } } });
  const all = tracked();
  const files = new Set(all.filter((file) => /\.tsx?$/.test(file) && !file.endsWith('.d.ts')));
  const sources = [...files].map((file) => sourceOf(file, files));
  const functions = sources.flatMap((source) => source.functions);
  const lines = new Map(all.map((file) => [file, linesOf(readFileSync(join(ROOT, file), 'utf8'))]));
  const sum = [...lines.values()].reduce((total, one) => total + one, 0);
  const exported = sources.flatMap(({ file, exports }) => exports.map((name) => ({ name, file })));
  const long = functions.filter((fn) => fn.lines > FUNCTION_LINES_MAX).toSorted((a, b) => b.lines - a.lines);
  const same = functions.filter((fn) => fn.body.length > 2 && fn.lines >= DUPLICATE_LINES_MIN);
  const sections: [string, string[]][] = [
    [
      `files above ${FILE_LINES_MAX} lines`,
      [...lines].filter(([, n]) => n > FILE_LINES_MAX).map(([f, n]) => `${f} ${n}`),
    ],
    [`functions above ${FUNCTION_LINES_MAX} lines`, long.map((fn) => `${fn.file} ${fn.name} ${fn.lines}`)],
    ['import cycles of values', cyclesOf(sources, false).map((group) => group.join(' '))],
    [`import cycles with types, without ${ENVIRONMENT}`, cyclesOf(sources, true).map((group) => group.join(' '))],
    [
      'names that two files export',
      repeated(
        exported,
        ({ name }) => name,
        ({ file }) => file,
      ).map(([name, where]) => `${name}: ${where.join(' ')}`),
    ],
    [
      `functions of ${DUPLICATE_LINES_MIN} lines or more that stand twice`,
      repeated(
        same,
        ({ body }) => body,
        ({ name, file }) => `${file}#${name}`,
      ).map(([, where]) => where.join(' ')),
    ],
  ];
  console.log(`product lines by hand, without research/: ${sum} in ${all.length} files`);
  for (const top of PRODUCT) {
    const own = [...lines].filter(([file]) => file.startsWith(`${top}/`));
    console.log(
      `  ${top.padEnd(10)} ${String(own.reduce((total, [, n]) => total + n, 0)).padStart(6)} in ${own.length} files`,
    );
  }
  for (const [title, found] of sections) {
    console.log(`${title}: ${found.length}`);
    if (values.list) for (const line of found) console.log(`  ${line}`);
  }
}

main();
