/**
 * The import order: docs/imports.json says which program may import which, and the layer of each folder in its program.
 * A folder imports only folders of lower layers, and no files import each other, not even for types.
 * `node packaging/imports.ts` prints each import that breaks the order and fails; `--write` also writes the table of
 * layers into docs/architecture.md.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { cyclesOf } from './cycles.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGE = join(ROOT, 'docs/architecture.md');

const Order = z.strictObject({
  /**
   * For each program, the paths in other programs that it may import. An entry of a folder replaces the entry of its
   * program for the files in that folder: only the gateway's Node host may import `node/`, not its Worker.
   */
  programs: z.record(z.string(), z.array(z.string())),
  /** For each program its folders and loose files, lowest layer first. */
  layers: z.record(z.string(), z.array(z.array(z.string()))),
  /** Files that have no layer, with the reason: they import only types. */
  exempt: z.record(z.string(), z.string()),
});
type Order = z.infer<typeof Order>;

interface Import {
  from: string;
  to: string;
}

export function readOrder(): Order {
  return Order.parse(JSON.parse(readFileSync(join(ROOT, 'docs/imports.json'), 'utf8')));
}

/** All relative imports in a program, as paths from the repository's root. */
export function importsOf(program: string): Import[] {
  return readdirSync(join(ROOT, program), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name))
    .flatMap((name) => {
      const from = join(program, name);
      const found = readFileSync(join(ROOT, from), 'utf8').matchAll(/(?:\bfrom |\bimport |\bimport\()'(\.[^']*)'/g);
      return [...found].map(([, path = '']) => ({ from, to: normalize(join(dirname(from), path)) }));
    });
}

/** The longest entry of `programs` that contains the file. */
function ruleOf(file: string, programs: Order['programs']): string {
  const containing = Object.keys(programs).filter((path) => file.startsWith(`${path}/`));
  return containing.toSorted((a, b) => b.length - a.length)[0] ?? '';
}

/** Returns why an import is not allowed; undefined: it is allowed. */
export function violation({ from, to }: Import, { programs, layers, exempt }: Order): string | undefined {
  const [[program = '', folder = ''], [target = '', other = '']] = [from.split(sep), to.split(sep)];
  if (program !== target) {
    const rule = ruleOf(from, programs);
    const isFree = programs[target] === undefined || programs[rule]?.some((path) => to.startsWith(path));
    return isFree ? undefined : `${from} imports ${to}: ${rule} may not import it (docs/imports.json, programs)`;
  }
  if (folder === other || exempt[from] !== undefined || exempt[to] !== undefined) return undefined;
  const layerOf = (name: string) => (layers[program] ?? []).findIndex((layer) => layer.includes(name));
  const [above, below] = [layerOf(folder), layerOf(other)];
  const unknown = above < 0 ? folder : below < 0 ? other : undefined;
  if (unknown !== undefined) return `${program}/${unknown} has no layer: add it to docs/imports.json`;
  return below < above ? undefined : `${from} imports ${to}: ${other} is not in a lower layer than ${folder}`;
}

/**
 * Files of a program that import each other in a cycle. Files without a layer are left out, because they import only
 * types.
 */
export function cycles(imports: readonly Import[], { exempt }: Pick<Order, 'exempt'>): string[] {
  const followed = new Map<string, string[]>();
  for (const { from, to } of imports)
    if (exempt[from] === undefined) followed.set(from, [...(followed.get(from) ?? []), to]);
  return cyclesOf(followed).map((files) => `these files import each other: ${files.toSorted().join(' ')}`);
}

/** Each import that breaks the order, and each entry of the order that does not exist. */
export function violations(order: Order): string[] {
  const programs = Object.keys(order.programs);
  const imports = programs.flatMap(importsOf);
  const broken = imports.flatMap((one) => violation(one, order) ?? []);
  const stale = programs.flatMap((program) => {
    const there = new Set(readdirSync(join(ROOT, program)));
    return (order.layers[program] ?? [])
      .flat()
      .filter((name) => !there.has(name))
      .map((name) => `${program}/${name}`);
  });
  const values = Object.keys(order.exempt).filter((path) =>
    /^(?:import|export) (?!type |interface |class |const |function )/m.test(readFileSync(join(ROOT, path), 'utf8')),
  );
  return [
    ...new Set(broken),
    ...cycles(imports, order),
    ...stale.map((path) => `docs/imports.json names ${path}, which does not exist`),
    ...values.map((path) => `${path} imports more than types, so it needs a layer in docs/imports.json`),
  ];
}

/** The table of layers for docs/architecture.md, as Markdown. */
function table({ programs, layers }: Order): string {
  const code = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(' ');
  const cells = Object.entries(programs).map(([program, allowed]) => [
    `\`${program}\``,
    allowed.length === 0 ? 'none' : code(allowed),
    (layers[program] ?? []).map((layer) => code(layer)).join(' → '),
  ]);
  const rows = [['program', 'imports of other programs', 'its layers, lowest first'], ...cells];
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  const [head = [], ...body] = rows;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('\n');
}

/** Returns the page with the table between its marks. */
export function withTable(page: string, order: Order): string {
  return page.replace(
    /(<!-- imports -->\n)[\s\S]*?(<!-- end -->)/,
    (_, begin, end) => `${begin}\n${table(order)}\n\n${end}`,
  );
}

function main(): void {
  const order = readOrder();
  const page = readFileSync(PAGE, 'utf8');
  if (process.argv.includes('--write')) writeFileSync(PAGE, withTable(page, order));
  else if (withTable(page, order) !== page) {
    console.error('docs/architecture.md does not show docs/imports.json: npm run imports -- --write');
    process.exitCode = 1;
  }
  for (const one of violations(order)) {
    console.error(one);
    process.exitCode = 1;
  }
}

if (import.meta.main) main();
