import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { overviewJson } from '../../deploy/grafana/overview.ts';
import { ROOT } from '../support/where.ts';

it('the dashboard that is shipped is the one that `npm run dashboard:generate` writes', () => {
  expect(readFileSync(join(ROOT, 'deploy/grafana/otela.json'), 'utf8')).toBe(overviewJson());
});
