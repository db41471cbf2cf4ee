/** The user's own program that judges evidence: nothing is sealed if it has any fault. */
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { VerifierCommand } from '../../../clients/otela/verifier-command.ts';
import { promise } from '../../support/patience.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { program } from '../../support/program.ts';

afterAll(endAll);

const node = {
  session: 'a'.repeat(26),
  provider: 'lab',
  mode: 'pinned' as const,
  kid: 'kid',
  key: new Uint8Array(32),
  until: 0,
};
const evidence = { node, kinds: ['tdx'], bytes: new Uint8Array(256 * 1024), reportData: new Uint8Array(64) };

async function judged(script: string, timeoutMs = 20_000) {
  const file = program(join(await temporaryDirectory('verifier'), 'verifier'), `#!/bin/sh\n${script}\n`);
  const lines: string[] = [];
  const verifier = new VerifierCommand({ file, print: (line) => void lines.push(line), timeoutMs });
  const took = await verifier.verify(evidence).catch(({ message }: Error) => message);
  return [took, ...lines];
}

const named = `${node.session} of lab (tdx): `;

it.each([
  ['takes', 'cat > /dev/null', 20_000, true, 'the verifier accepted its evidence'],
  ['refuses', 'exit 1', 20_000, false, 'not used: the verifier rejected its evidence'],
  // Without a verdict the node is asked again seconds later, not minutes.
  ['is ended by a signal', 'kill -9 $$', 20_000, 'the verifier failed', 'not used: the verifier failed'],
  ['hangs', 'exec sleep 60', 2_000, 'the verifier failed', 'not used: the verifier failed'],
])('one that %s', async (_, script, timeoutMs, took, verdict) => {
  expect(await judged(script, timeoutMs)).toEqual([took, named + verdict]);
});

it('one that leaves a process behind, with its output open, is not waited for', async () => {
  const from = performance.now();
  expect((await judged(`sleep ${promise(30)} & exit 0`, promise(25_000)))[0]).toBe(true);
  expect(performance.now() - from).toBeLessThan(promise(20_000));
});

it('one that prints without end, or is none, is one short line', async () => {
  const [took, line = ''] = await judged('yes firmware | head -c 1000000');
  expect([took, String(line).length < 500, String(line).split('\n').length]).toEqual([true, true, 1]);
  const lines: string[] = [];
  const absent = new VerifierCommand({ file: '/nowhere/verifier', print: (one) => void lines.push(one) });
  await expect(absent.verify(evidence)).rejects.toThrow('ENOENT');
  expect(lines).toEqual([expect.stringContaining('ENOENT')]);
});
