/** Imports follow the import order, and the page shows it. */
import { expect, it } from 'vitest';
import { cycles, importsOf, readOrder, violation, violations, withTable } from '../../packaging/imports.ts';
import { read } from './markdown.ts';

const order = readOrder();

it('every import follows docs/imports.json', () => {
  expect(Object.keys(order.programs).flatMap(importsOf).length).toBeGreaterThan(1_000);
  expect(violations(order)).toEqual([]);
});

it.each([
  ['gateway/app.ts', 'agent/cli/main.ts', 'gateway may not import it'],
  ['shared/proxy/handle-request.ts', 'gateway/app.ts', 'shared may not import it'],
  ['dashboard/main.tsx', 'shared/proxy/handle-request.ts', 'dashboard may not import it'],
  ['gateway/hosts/worker/a.ts', 'node/private-file.ts', 'gateway may not import it'],
  ['clients/seal/index.ts', 'node/private-file.ts', 'clients may not import it'],
  ['shared/text/a.ts', 'node/private-file.ts', 'shared may not import it'],
  ['scheduler/cli/main.ts', 'research/judge/main.ts', 'scheduler may not import it'],
  ['gateway/accounts/a.ts', 'gateway/admin/b.ts', 'not in a lower layer'],
  ['gateway/files/a.ts', 'gateway/usage/b.ts', 'not in a lower layer'],
  ['gateway/new/a.ts', 'gateway/usage/b.ts', 'gateway/new has no layer'],
])('%s may not import %s', (from, to, reason) => {
  expect(violation({ from, to }, order)).toContain(reason);
});

it.each([
  ['gateway/admin/a.ts', 'gateway/accounts/b.ts'],
  ['gateway/accounts/a.ts', 'gateway/env.ts'],
  ['gateway/app.ts', 'shared/proxy/handle-request.ts'],
  ['gateway/hosts/node/serve/a.ts', 'node/private-file.ts'],
  ['clients/otela/main.ts', 'node/private-file.ts'],
  ['dashboard/main.tsx', 'clients/seal/index.ts'],
  ['gateway/app.ts', 'package.json'],
])('%s may import %s', (from, to) => {
  expect(violation({ from, to }, order)).toBeUndefined();
});

it('files that import each other are refused, unless one of them has no layer', () => {
  const ring = ['gateway/a.ts', 'gateway/b.ts', 'gateway/c.ts'];
  const imports = ring.map((from, n) => ({ from, to: ring[(n + 1) % 3] ?? '' }));
  expect(cycles(imports, order)).toEqual(['these files import each other: gateway/a.ts gateway/b.ts gateway/c.ts']);
  expect(cycles(imports.slice(1), order)).toEqual([]);
  expect(cycles(imports, { exempt: { 'gateway/b.ts': 'a test' } })).toEqual([]);
});

it('only its tests import research', () => {
  const all = ['bench', 'deploy', 'examples', 'packaging', 'test'].flatMap(importsOf);
  const found = all.filter(({ from, to }) => to.startsWith('research/') && !from.startsWith('test/research/'));
  expect(found).toEqual([]);
});

it('docs/architecture.md shows the order', () => {
  const page = read('docs/architecture.md');
  expect(page).toContain('<!-- imports -->');
  expect(withTable(page, order)).toBe(page);
});

it('a file without a layer imports types only', () => {
  const broken = { ...order, exempt: { ...order.exempt, 'gateway/app.ts': 'a test' } };
  expect(violations(broken)).toEqual([
    'gateway/app.ts imports more than types, so it needs a layer in docs/imports.json',
  ]);
});
