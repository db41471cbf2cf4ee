/** Lists on pages match the code. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import * as exits from '../../agent/config/exit-codes.ts';
import { FIGURE_NAMES, numberOfFigure } from '../../gateway/cli/trace/paper-figures.ts';
import { EXIT_DONE, EXIT_USAGE } from '../../shared/command-line/index.ts';
import { NODE, ROOT } from '../support/where.ts';
import { markdownFiles, read } from './markdown.ts';

it('docs/troubleshooting.md has every exit code of the agent', () => {
  const page = read('docs/troubleshooting.md');
  const codes = [EXIT_DONE, EXIT_USAGE, ...Object.values(exits)].filter((value) => typeof value === 'number');
  expect(codes.length).toBeGreaterThan(3);
  // An exit code is below 256; larger numbers are HTTP statuses.
  const listed = [...page.matchAll(/^\| (\d+) /gm)].map(([, code]) => Number(code)).filter((code) => code < 256);
  expect(listed).toEqual([...codes].sort((a, b) => a - b));
});

it('docs/operations.md says what to do at the alerts of the game day, and at none that there is not', () => {
  const alerts = new Set(
    [...read('deploy/prometheus/otela.rules.yml').matchAll(/alert: (\w+)/g)].map(([, name]) => name),
  );
  const told = new Set([...read('docs/operations.md').matchAll(/`(Otela\w+)`/g)].map(([, name]) => name));
  expect([...told].filter((name) => !alerts.has(name))).toEqual([]);
  const raised = [...read('test/netns/game-day/events.ts').matchAll(/alert: '(\w+)'/g)].map(([, name]) => name);
  expect(raised.length).toBeGreaterThan(9);
  expect(raised.filter((name) => !told.has(name))).toEqual([]);
});

it('docs/troubleshooting.md quotes what the programs print', () => {
  const source = [...['agent', 'gateway', 'shared'].flatMap(sources), read('build.ts')].join('\n');
  const quotes = [...read('docs/troubleshooting.md').matchAll(/^\| ([^|]*`[^|]*`[^|]*) \|/gm)].flatMap(
    ([, cell = '']) => [...cell.matchAll(/`([^`]+)`/g)].map(([, quote = '']) => quote),
  );
  // The text between omissions and values that the program fills in.
  const pieces = quotes.flatMap((quote) => quote.split(/…:?|\d{3}|"/)).map((piece) => piece.trim());
  const told = pieces.filter((piece) => piece.split(' ').length > 2);
  expect(told.length).toBeGreaterThan(15);
  expect(told.filter((piece) => !source.includes(piece))).toEqual([]);
});

it('figures of speed are those that a run gave: the tables say what bench/results has', () => {
  const { status, stderr } = spawnSync(NODE, [join(ROOT, 'bench/tables.ts'), '--check'], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
});

function sources(room: string): string[] {
  return readdirSync(join(ROOT, room), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(ROOT, room, name), 'utf8').replaceAll('\\', ''));
}

/** Folders in the first columns of the page's tables. */
function roomsOf(page: string): string[] {
  return [...read(page).matchAll(/^\| (`.+?`)\s+\|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([a-z-]+\/[^`]*)`/g)].map(([, path = '']) => path),
  );
}

it('each file that docs/architecture.md names by its path exists', () => {
  const paths = [...read('docs/architecture.md').matchAll(/`((?:[\w-]+\/)+[\w.-]+\.(?:ts|tsx|json|toml))`/g)].map(
    ([, path = '']) => path,
  );
  expect(paths.length).toBeGreaterThan(40);
  expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

it('docs/architecture.md names every room, and no other', () => {
  const rooms = roomsOf('docs/architecture.md');
  expect(rooms.filter((room) => !existsSync(join(ROOT, room)))).toEqual([]);
  const named = new Set(rooms);
  // Folders that git ignores are left out.
  const made = new Set(['node_modules', 'dist', 'data', 'release', 'cloudflare-keys']);
  const tops = readdirSync(ROOT, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && !made.has(entry.name))
    .map(({ name }) => `${name}/`)
    .filter((top) => !rooms.some((room) => room.startsWith(top)) && top !== 'docs/');
  expect(tops).toEqual([]);
  const folders = [
    'gateway',
    'agent',
    'shared',
    'node',
    'scheduler',
    'factory',
    'up',
    'research',
    'test',
    'dashboard',
  ].flatMap((top) =>
    readdirSync(join(ROOT, top), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${top}/${entry.name}/`),
  );
  expect(folders.filter((folder) => !named.has(folder))).toEqual([]);
});

it('pages call one gateway by one name', () => {
  const names = markdownFiles()
    .filter((file) => !file.startsWith('docs/reference/'))
    .flatMap((file) =>
      [...read(file).matchAll(/[\w.-]+\.example(?:\.(?:org|com))?\b/g)].map(([name]) => `${file}: ${name}`),
    );
  // Two gateways of an institution, another institution's, a login provider, a registry of images.
  const known = /: (?:gw|gw1|gw2|gw\.eth|login|registry|hooks|mail|chat)\.example\.org$/;
  expect(names.length).toBeGreaterThan(20);
  expect(names.filter((name) => !known.test(name))).toEqual([]);
});

it('pages say that an agent listens and how to disable it, and which NATs allow a direct connection', () => {
  const text = (page: string) => read(page).replaceAll(/\s+/g, ' ');
  expect(read('docs/reference/otela-agent.md')).toMatch(/`--mesh HOST[^\n]*all addresses, a free port/);
  for (const page of ['README.md', 'packaging/npm/opentela.md', 'docs/quickstart-provider.md']) {
    expect(text(page), page).toMatch(/listens on a random port/);
    expect(text(page), page).toMatch(/`--mesh off`|`OTELA_MESH=off`/);
  }
  for (const page of [...markdownFiles(), 'packaging/npm/opentela.md'])
    expect(text(page), page).not.toMatch(/nothing listens for|agent opens no port/i);
  expect(text('docs/agent.md')).toMatch(
    /all can meet, but for two symmetric ones, and a symmetric and a port-restricted one/,
  );
  expect(text('test/netns/punch.test.ts')).toContain('opens a direct path through eight of the ten pairs of NATs');
});

it('pages promise the figures of trace plot by the numbers that the program gives them', () => {
  const numbers = FIGURE_NAMES.map(numberOfFigure).join('; ');
  for (const page of ['docs/reference/otela-gateway.md', 'docs/usage.md']) {
    const text = read(page).replaceAll(/\s+/g, ' ');
    expect(text, page).toMatch(/Table 2,? and Figures 1 and 9 to 17|Table 2, Figures 1 and 9 to 17/);
  }
  for (const wanted of ['Table 2', 'Figure 1', ...Array.from({ length: 9 }, (_, n) => `Figure ${n + 9}`)])
    expect(numbers).toMatch(new RegExp(`(?:^|; )${wanted}\\b`));
  expect(numbers).toContain('OpenFabric: Figure 13');
});

it('examples that write a secret into a file let no other user read it', () => {
  const written = /^.*\b(?:keys (?:create|rotate)|tokens create)\b[^|#]*> .*$/gm;
  const lines = markdownFiles()
    .filter((file) => !/^umask 077$/m.test(read(file)))
    .flatMap((file) => [...read(file).matchAll(written)].map(([line]) => `${file}: ${line}`));
  expect(lines.length).toBeGreaterThan(10);
  expect(lines.filter((line) => !line.includes('umask 077;'))).toEqual([]);
});
