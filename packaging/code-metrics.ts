/**
 * `npm run figures:house [-- --list]` measures the size of the code: handwritten product lines, long files, functions
 * and constructors, import cycles, names that two files export, exports that no file imports, and duplicate functions.
 * `--list` lists them.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parseAst } from 'vite';
import { cyclesOf } from './cycles.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Folders that users install or run; all others (research/, tests, benches and docs) do not count. */
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
  'up',
];
const GENERATED = ['dashboard/ui/icons.ts'];
const FILE_LINES_MAX = 400;
const FUNCTION_LINES_MAX = 60;
const CONSTRUCTOR_LINES_MAX = 40;
/** Functions with fewer lines are not reported as duplicates. */
const DUPLICATE_LINES_MIN = 6;
/** Objects and arrays with fewer lines count as logic, not as a table. */
const TABLE_LINES_MIN = 8;
/** A switch that has a case with more lines counts as logic, not as a table. */
const CASE_LINES_MAX = 9;
/** The Worker's entry. Its exports are used by wrangler.toml, which names them. */
const WORKER = 'gateway/index.ts';
/** Exports the names of the English texts. */
const TRANSLATION = /^dashboard\/texts\/(?!en\/)/;
/** This file names the classes of Durable Objects, as types only, so any folder may import it. */
const ENVIRONMENT = 'gateway/env.ts';

interface Fn {
  name: string;
  file: string;
  lines: number;
  /** Number of lines outside JSX and outside tables; see isTable. */
  logicLines: number;
  body: string;
}

interface Source {
  file: string;
  lines: number;
  text: string;
  imports: { to: string; typeOnly: boolean; names: string[] }[];
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

const isFunction = ({ type }: Node): boolean =>
  /^(Function(Declaration|Expression)|ArrowFunctionExpression)$/.test(type);

const contains = (node: Node, wanted: (node: Node) => boolean): boolean =>
  wanted(node) || [...childrenOf(node)].some((child) => contains(child, wanted));

/** True for an object or an array that holds no function, and for a switch whose cases are all short. */
const isTable = (node: Node, text: string): boolean =>
  node.type === 'SwitchStatement'
    ? [...childrenOf(node)].every((child) => linesBetween(text, child) <= CASE_LINES_MAX)
    : /^(Object|Array)Expression$/.test(node.type) && !contains(node, isFunction);

const linesBetween = (text: string, { start, end }: Node): number => text.slice(start, end).split('\n').length;

/**
 * Number of lines below `node` that are JSX or a table. The first and last line of a table are not counted, because
 * they also contain other code.
 */
function dataLines(node: Node, text: string): number {
  const lines = linesBetween(text, node);
  if (node.type === 'JSXElement' || node.type === 'JSXFragment') return lines;
  if (lines < TABLE_LINES_MIN) return 0;
  if (isTable(node, text)) return lines - 2;
  return [...childrenOf(node)].reduce((sum, child) => sum + dataLines(child, text), 0);
}

/** Every function below `node`; an unnamed function gets the name of its variable. */
function* functionsOf(node: Node, text: string, file: string, called = 'default'): Generator<Fn> {
  const name = nameOf(node) ?? called;
  if (isFunction(node) && isNode(node.body)) {
    const lines = linesBetween(text, node);
    const logicLines = lines > FUNCTION_LINES_MAX ? lines - dataLines(node, text) : lines;
    yield { name, file, lines, logicLines, body: text.slice(node.body.start, node.body.end).replaceAll(/\s+/g, ' ') };
  }
  for (const child of childrenOf(node)) yield* functionsOf(child, text, file, name);
}

const linesOf = (text: string): number => text.split('\n').length - 1;

/** Exported names; names from destructuring are left out. */
function exportsOf(node: Node): (string | undefined)[] {
  if (node.type !== 'ExportNamedDeclaration' || isNode(node.source)) return [];
  if (!isNode(node.declaration)) return Array.isArray(node.specifiers) ? node.specifiers.map(nameOf) : [];
  const { declarations } = node.declaration;
  return Array.isArray(declarations) ? declarations.map(nameOf) : [nameOf(node.declaration)];
}

/** Names that an import or a re-export takes from its file; `*`: possibly all. */
function importedNames({ specifiers }: Node): string[] {
  const named = Array.isArray(specifiers) ? specifiers.filter(isNode) : [];
  const names = named.map(({ type, imported, local }) =>
    type === 'ImportDefaultSpecifier' ? 'default' : (nameOf(imported ?? (type === 'ExportSpecifier' && local)) ?? '*'),
  );
  return named.length === 0 ? ['*'] : names;
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
    const typeOnly = node.importKind === 'type' || node.exportKind === 'type';
    return files.has(to) ? [{ to, typeOnly, names: importedNames(node) }] : [];
  });
  const exports = body.flatMap(exportsOf).filter((name) => name !== undefined);
  return { file, lines: linesOf(text), text, imports, exports, functions: [...functionsOf(program, text, file)] };
}

/** Groups of files that import each other. The imports of `ENVIRONMENT` do not count. */
function cyclesIn(sources: readonly Source[], withTypes: boolean): string[] {
  const followed = sources.map(({ file, imports }): [string, string[]] => [
    file,
    file === ENVIRONMENT ? [] : imports.filter(({ typeOnly }) => withTypes || !typeOnly).map(({ to }) => to),
  ]);
  return cyclesOf(new Map(followed)).map((group) => group.join(' '));
}

/** Keys that occur in at least two files, with these files. */
function repeated<T>(items: readonly T[], key: (item: T) => string, file: (item: T) => string): [string, string[]][] {
  const by = new Map<string, Set<string>>();
  for (const item of items) by.set(key(item), (by.get(key(item)) ?? new Set()).add(file(item)));
  return [...by].filter(([, files]) => files.size > 1).map(([name, files]) => [name, [...files]]);
}

/** Exports of the product that no file of the repository imports by name, as `file name`. */
function unimported(product: readonly Source[], all: readonly Source[]): string[] {
  const used = new Set(
    all.flatMap(({ imports }) => imports.flatMap(({ to, names }) => names.map((n) => `${to} ${n}`))),
  );
  const text = all.map((source) => source.text).join('\n');
  const loadedLate = new Set([...text.matchAll(/import\(\s*'[^']*?([^'/]+)'/g)].map(([, file]) => file));
  return product
    .filter(({ file }) => !used.has(`${file} *`) && !loadedLate.has(basename(file)))
    .flatMap(({ file, exports }) => exports.map((name) => `${file} ${name}`))
    .filter((one) => !used.has(one));
}

function tracked(folders: readonly string[] = []): string[] {
  const listed = execFileSync('git', ['ls-files', ...folders], { cwd: ROOT, encoding: 'utf8', maxBuffer: 1 << 24 });
  const code = listed.split('\n').filter((file) => /\.(tsx?|jsx?|py|css)$/.test(file));
  return code.filter((file) => existsSync(join(ROOT, file)));
}

type Section = [title: string, found: string[]];

function sizes(functions: readonly Fn[], lines: ReadonlyMap<string, number>): Section[] {
  const long = functions.filter((fn) => fn.lines > FUNCTION_LINES_MAX).toSorted((a, b) => b.lines - a.lines);
  const logic = long.filter((fn) => fn.logicLines > FUNCTION_LINES_MAX);
  const constructors = functions.filter((fn) => fn.name === 'constructor' && fn.lines > CONSTRUCTOR_LINES_MAX);
  const files = [...lines].filter(([, n]) => n > FILE_LINES_MAX);
  return [
    [`files above ${FILE_LINES_MAX} lines`, files.map(([file, n]) => `${file} ${n}`)],
    [
      `functions above ${FUNCTION_LINES_MAX} lines, without JSX and tables`,
      logic.map((fn) => `${fn.file} ${fn.name} ${fn.logicLines}`),
    ],
    [`functions above ${FUNCTION_LINES_MAX} lines, with them`, long.map((fn) => `${fn.file} ${fn.name} ${fn.lines}`)],
    [`constructors above ${CONSTRUCTOR_LINES_MAX} lines`, constructors.map((fn) => `${fn.file} ${fn.lines}`)],
  ];
}

function duplicates(sources: readonly Source[], functions: readonly Fn[], parsed: readonly Source[]): Section[] {
  const exported = sources
    .filter(({ file }) => file !== WORKER && !TRANSLATION.test(file))
    .flatMap(({ file, exports }) => exports.map((name) => ({ name, file })));
  const names = repeated(
    exported,
    ({ name }) => name,
    ({ file }) => file,
  );
  const bodies = repeated(
    functions.filter((fn) => fn.body.length > 2 && fn.lines >= DUPLICATE_LINES_MIN),
    ({ body }) => body,
    ({ name, file }) => `${file}#${name}`,
  );
  return [
    ['names that two files export', names.map(([name, where]) => `${name}: ${where.join(' ')}`)],
    ['exports that no file imports', unimported(sources, parsed)],
    [`functions of ${DUPLICATE_LINES_MIN} lines or more that occur twice`, bodies.map(([, where]) => where.join(' '))],
  ];
}

function main(): void {
  const { values } = parseArgs({ options: { list: { type: 'boolean', default: false } } });
  const all = tracked(PRODUCT).filter((file) => !GENERATED.includes(file));
  const files = new Set(tracked().filter((file) => /\.tsx?$/.test(file) && !file.endsWith('.d.ts')));
  const parsed = [...files].map((file) => sourceOf(file, files));
  const sources = parsed.filter(({ file }) => all.includes(file));
  const functions = sources.flatMap((source) => source.functions);
  const lines = new Map(all.map((file) => [file, linesOf(readFileSync(join(ROOT, file), 'utf8'))]));
  const sum = [...lines.values()].reduce((total, one) => total + one, 0);
  console.log(`product lines by hand, without research/: ${sum} in ${all.length} files`);
  for (const top of PRODUCT) {
    const own = [...lines].filter(([file]) => file.startsWith(`${top}/`));
    console.log(
      `  ${top.padEnd(10)} ${String(own.reduce((total, [, n]) => total + n, 0)).padStart(6)} in ${own.length} files`,
    );
  }
  const sections: Section[] = [
    ...sizes(functions, lines),
    ['import cycles of values', cyclesIn(sources, false)],
    [`import cycles with types, without ${ENVIRONMENT}`, cyclesIn(sources, true)],
    ...duplicates(sources, functions, parsed),
  ];
  for (const [title, found] of sections) {
    console.log(`${title}: ${found.length}`);
    if (values.list) for (const line of found) console.log(`  ${line}`);
  }
}

main();
