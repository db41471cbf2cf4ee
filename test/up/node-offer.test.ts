/** Offers of a run's nodes, with a real shell. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { offerNodes } from '../../up/job/node-offer.ts';
import type { Run } from '../../up/state/runs.ts';
import { temporaryDirectory } from '../support/processes.ts';

const GATEWAY = 'https://gateway.example.org';
const now = () => Math.floor(Date.now() / 1_000);

it.each([
  ['runs', GATEWAY, now() + 600, ['offer-17.log']],
  ['has ended', GATEWAY, now() - 1, []],
  ['is to another gateway', 'https://other.example.org', now() + 600, []],
])('an earlier offer that %s', async (_, url, until, logs) => {
  const home = await temporaryDirectory('otela-offer');
  const at = join(home, '.otela/run/r1');
  mkdirSync(at, { recursive: true });
  writeFileSync(join(at, 'offer'), `${url} ${until}\n`);
  for (const job of ['17', '18']) writeFileSync(join(at, `offer-${job}.log`), 'session a, state in');
  const env = { HOME: home, PATH: process.env.PATH ?? '' };
  const host = {
    output: async (script: string, input = '') =>
      execFileSync('bash', ['-c', script], { input, encoding: 'utf8', env }),
  };
  const endsAt = new Date(Date.now() + 3_600_000);
  await offerNodes(host, { id: 'r1' } as Run, { to: GATEWAY, token: 't', endsAt, jobs: ['17'] });
  expect(readdirSync(at).filter((name) => name.endsWith('.log'))).toEqual(logs);
  expect(readFileSync(join(at, 'offer'), 'utf8')).toBe(`${GATEWAY} ${Math.floor(endsAt.getTime() / 1_000)}\n`);
});
