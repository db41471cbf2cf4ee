/** What `otela down` does on a host. */
import { expect, it } from 'vitest';
import { endOnHost } from '../../up/cli/down-command.ts';
import type { Host } from '../../up/host/host.ts';
import type { Run } from '../../up/state/runs.ts';

it('a job that --keep submits while down runs is cancelled, too', async () => {
  const lists = ['job=1|RUNNING|None|', 'job=1|CANCELLED|None|\njob=2|PENDING|None|', 'job=2|CANCELLED|None|'];
  const scripts: string[] = [];
  const output = async (script: string) => {
    scripts.push(script);
    return script.includes('squeue') ? (lists.shift() ?? '') : '';
  };
  const run: Run = { id: 'a1', host: 'cluster', model: 'm', started: '2026-11-27T10:00:00Z' };
  await endOnHost({ output } as unknown as Host, run, { socketOf: () => '/nonexistent' }, false);
  expect(scripts.filter((script) => script.startsWith('scancel'))).toEqual([
    'scancel --quiet 1 || true',
    'scancel --quiet 2 || true',
  ]);
  expect(lists).toEqual([]);
});
