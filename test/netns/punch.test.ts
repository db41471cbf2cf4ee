/**
 * Direct paths between two hosts behind NATs by TCP simultaneous open, for each pair of four kinds of NAT. Agents that
 * use them are in relay.test.ts.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { patience } from '../support/patience.ts';
import { endAll, Managed } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';
import { GATEWAY_ADDRESS, NAT_KINDS, type NatKind, Network, on } from './network.ts';

afterEach(endAll);

const HOST = join(ROOT, 'test/netns/punch-host.ts');
const PORT = 7_100;
/** One attempt in about fifty fails: a NAT forgets a refused connection after 10 s only. Agents try again, too. */
const ATTEMPTS_MAX = 3;
const run = promisify(execFile);
const pairs = NAT_KINDS.flatMap((a, n) => NAT_KINDS.slice(n).map((b): [NatKind, NatKind] => [a, b]));

/**
 * A symmetric NAT uses a new port for each destination, so the other end's segment must not depend on it: the other NAT
 * must accept any port of an address that its host has contacted.
 */
const allows = ([a, b]: [NatKind, NatKind]) => !(b === 'symmetric' && (a === 'port-restricted' || a === 'symmetric'));

/** `open MS, open MS` if both hosts have a direct connection. */
async function openBetween(): Promise<string> {
  const ends = await Promise.all(
    ['c1h1', 'c2h1'].map(async (host) => {
      const [command = '', ...args] = [...on(host), NODE, HOST, 'open', `${GATEWAY_ADDRESS}:${PORT}`];
      return (await run(command, args, { timeout: patience(60_000) })).stdout.trim();
    }),
  );
  return ends.toSorted().join(', ');
}

it('opens a direct path through eight of the ten pairs of NATs, and the other two are known', async () => {
  const network = await Network.up();
  const third = new Managed([...on('gateway'), NODE, HOST, 'serve', String(PORT)], { label: 'third host' });
  await third.line(/ready/, 20_000);
  const rows: string[] = [];
  let opened = 0;
  for (const pair of pairs) {
    for (const [n, kind] of pair.entries()) network.nat(n === 0 ? 1 : 2, kind);
    const attempts: string[] = [];
    const isOpen = () => attempts.at(-1)?.startsWith('open') === true;
    while (!isOpen() && attempts.length < (allows(pair) ? ATTEMPTS_MAX : 1)) attempts.push(await openBetween());
    if (isOpen()) opened++;
    rows.push(`${pair.join(' and ')}: ${attempts.join('; ')}`);
    expect(isOpen(), rows.at(-1)).toBe(allows(pair));
  }
  console.log(`${opened} of ${pairs.length} pairs of NATs:\n${rows.join('\n')}`);
  expect(opened).toBe(8);
});
