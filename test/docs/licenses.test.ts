/** The license texts that a release distributes with bundled code. */
import { expect, test } from 'vitest';
import { licences } from '../../packaging/sbom.ts';
import { ROOT } from '../support/where.ts';

test('a package without a license file is listed with the license of its README', async () => {
  expect(await licences(ROOT, ['node_modules/pgpass'])).toMatch(/^== pgpass [\d.]+\n\nCopyright \(c\)[\s\S]*AS IS/);
});

test('a license file is preferred to the README', async () => {
  expect(await licences(ROOT, ['node_modules/pg'])).toMatch(/^== pg [\d.]+\n\nMIT License/);
});
