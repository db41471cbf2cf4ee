/**
 * A laptop behind NAT, and compute nodes that reach only the login node, on a real Slurm with a real sshd: in one
 * variant it forbids GatewayPorts, in the other all forwarding.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { cannotRun } from '../support/abilities.ts';
import { endAll, eventually } from '../support/processes.ts';
import { createUser, NO_SSHD, noProcessOf } from '../support/ssh-host.ts';
import { Laptop, MODEL, type Served, served } from './laptop.ts';
import { LaptopNetwork } from './laptop-network.ts';

afterEach(endAll);

/** Longer than ssh and the relay need to notice that the other end is gone. */
const ASLEEP_MS = 1_000 * Number(process.env.OTELA_TEST_ASLEEP_S ?? 120);

it.skipIf(NO_SSHD || cannotRun('netns') !== undefined).each([
  ['GatewayPorts no', 0],
  ['DisableForwarding yes', ASLEEP_MS],
])('sshd with "%s"', async (sshd, asleepMs) => {
  const network = LaptopNetwork.up();
  // A compute node has no way out, and the laptop no way to it.
  expect(network.output('otl-n1', 'bash', '-c', '</dev/tcp/203.0.113.1/22')).toMatch(/unreachable/i);
  const laptop = await Laptop.open('', sshd, network);
  const { user, home } = laptop;
  const up = laptop.up('--time', '30');
  const access = await served(up);
  expect(ask(network, access)).toContain('stand-in');
  const listening = network.output('otl-login', 'ss', '-Hltn');
  const addresses = [...listening.matchAll(/\s([\d.]+|\[\S+\]|\*):\d+\s/g)].map(([, address]) => address);
  expect(new Set(addresses)).toEqual(new Set(['203.0.113.10', '10.9.0.1']));
  expect(laptop.host.port).toBe(Number(/203\.0\.113\.10:(\d+)/.exec(listening)?.[1]));
  await strangerGetsNothing(network, Number(/10\.9\.0\.1:(\d+)/.exec(listening)?.[1]));

  if (asleepMs > 0) {
    const job = laptop.cluster.command('squeue', '-h', '-o', '%i %T').trim();
    network.laptopLink('down');
    await delay(asleepMs);
    network.laptopLink('up');
    await up.line(/connected to cluster again/, 120_000);
    await eventually('an answer after the sleep', 60_000, () => ask(network, access).includes('stand-in') || undefined);
    expect(laptop.cluster.command('squeue', '-h', '-o', '%i %T').trim()).toBe(job);
  }

  expect((await laptop.ran('down', '--purge')).code).toBe(0);
  expect(await up.end(30_000)).toMatchObject({ code: 0 });
  expect(existsSync(join(user.home, '.otela'))).toBe(false);
  expect(existsSync(join(home, '.local/state/otela'))).toBe(false);
  await noProcessOf(user);
});

/** Asks the model on the laptop. */
function ask(network: LaptopNetwork, { url, key }: Served): string {
  const body = JSON.stringify({ model: MODEL, max_tokens: 6, messages: [{ role: 'user', content: 'Hello' }] });
  const headers = ['-H', `authorization: Bearer ${key}`, '-H', 'content-type: application/json'];
  return network.output('otl-laptop', 'curl', '-sS', '-m', '60', `${url}/chat/completions`, ...headers, '-d', body);
}

/** Another user of the login node and of a compute node gets no byte of the relay, and cannot read the token. */
async function strangerGetsNothing(network: LaptopNetwork, port: number): Promise<void> {
  const { uid, gid } = await createUser();
  const user = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'];
  const as = (namespace: 'otl-login' | 'otl-n2', script: string) =>
    network.output(namespace, ...user, 'bash', '-c', script);
  const proof = Buffer.alloc(48).toString('base64url');
  const asked = `printf 'CONNECT otela:443 HTTP/1.1\\r\\nhost: otela:443\\r\\nproxy-authorization: Otela ${proof}\\r\\n\\r\\n'`;
  for (const namespace of ['otl-login', 'otl-n2'] as const)
    expect(
      as(namespace, `${asked} | timeout 8 bash -c 'exec 3<>/dev/tcp/10.9.0.1/${port}; cat >&3; head -c 12 <&3'`),
    ).toBe('');
}
