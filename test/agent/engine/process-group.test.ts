import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { endGroup } from '../../../agent/engine/process-group.ts';
import { NODE } from '../support/harness.ts';

it('the grace of a group is over by the clock, however long each look at its processes takes', async () => {
  const deaf = `process.on('SIGTERM', () => {}); console.log('ready'); setInterval(() => {}, 1e6)`;
  const child = spawn(NODE, ['-e', deaf], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  if (child.stdout !== null) await once(child.stdout, 'data');
  let looks = 0;
  const slow = () => {
    looks++;
    for (const until = performance.now() + 300; performance.now() < until; );
    return child.exitCode === null && child.signalCode === null;
  };
  await endGroup(child.pid ?? 0, 1_500, new Promise(() => {}), slow);
  // If the grace were counted in checks of 50 ms, it would take thirty of them.
  expect(looks).toBeLessThan(20);
  expect(child.signalCode).toBe('SIGKILL');
});
