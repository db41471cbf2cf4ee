import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { firstLine, openApiText } from '../../packaging/contract.ts';
import { ROOT } from '../support/where.ts';

it('the dashboard’s types are those of the gateway’s OpenAPI document: else run `npm run api:generate`', async () => {
  const [line] = readFileSync(join(ROOT, 'dashboard/api/contract.ts'), 'utf8').split('\n', 1);
  expect(line).toBe(firstLine(await openApiText()));
});
