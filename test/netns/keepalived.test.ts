/**
 * The recipes of docs/gateways.md, verbatim, with Debian's keepalived. Two gateways on separate hosts share one address,
 * and new connections to it fail at most for a moment when a gateway, or its machine, dies. A gateway that is restored
 * from a copy on the second host gets the address. Skipped if keepalived is not installed.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { fileOf } from '../docs/page.ts';
import { NO_POSTGRES, which } from '../support/abilities.ts';
import { Gateway } from '../support/gateway.ts';
import { GatewayProcesses } from '../support/gateway-processes.ts';
import { promise } from '../support/patience.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';
import { on } from './network.ts';

afterEach(endAll);

const PORT = 8787;
const LINKS_PORT = 8790;
const PAGE = 'docs/gateways.md';
/** From RFC 2544, for tests: the page's 192.0.2.0/24 may be used by this machine. */
const NET = '198.18.7';
const SHARED = `${NET}.10`;
const PATH = `${process.env.PATH}:/usr/sbin:/sbin`;
const MISSING =
  which('keepalived') === undefined ? 'keepalived is not installed: apt-get install keepalived' : undefined;

function ip(...args: string[]): void {
  const { status, stderr } = spawnSync('ip', args, { encoding: 'utf8', env: { PATH } });
  if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr}`);
}

/** Two hosts on one switch, .1 and .2; this machine is .254. */
function network(): void {
  const undo = () => {
    // A namespace with running processes keeps its end of the cable: deleting this end removes both.
    for (const link of ['vipend1', 'vipend2', 'vipbr']) spawnSync('ip', ['link', 'del', link], { env: { PATH } });
    for (const host of ['vip1', 'vip2']) spawnSync('ip', ['netns', 'del', host], { env: { PATH } });
  };
  undo();
  atEnd(undo);
  ip('link', 'add', 'vipbr', 'type', 'bridge');
  ip('addr', 'add', `${NET}.254/24`, 'dev', 'vipbr');
  ip('link', 'set', 'vipbr', 'up');
  for (const n of ['1', '2']) {
    ip('netns', 'add', `vip${n}`);
    ip('-n', `vip${n}`, 'link', 'set', 'lo', 'up');
    ip('link', 'add', `vipend${n}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', `vip${n}`);
    ip('link', 'set', `vipend${n}`, 'master', 'vipbr', 'up');
    ip('-n', `vip${n}`, 'addr', 'add', `${NET}.${n}/24`, 'dev', 'eth0');
    ip('-n', `vip${n}`, 'link', 'set', 'eth0', 'up');
  }
}

async function keepalived(n: 1 | 2): Promise<void> {
  const [loop, configuration] = [fileOf(PAGE, 'otela-ready'), fileOf(PAGE, 'keepalived.conf')];
  const directory = await temporaryDirectory('otela-keepalived');
  const at = (name: string) => join(directory, name);
  await writeFile(at('ready'), '-254\n');
  await writeFile(at('loop'), loop);
  await chmod(at('loop'), 0o755);
  const own = configuration
    .replace('/run/otela/ready', at('ready'))
    .replace('192.0.2.10', SHARED)
    .replace('priority 100 ', n === 1 ? 'priority 100 ' : 'priority 90 ');
  await writeFile(at('keepalived.conf'), own);
  new Managed([...on(`vip${n}`), at('loop')], { env: { OTELA_READY_FILE: at('ready') }, label: `loop ${n}` });
  const files = ['-p', at('main.pid'), '-r', at('vrrp.pid'), '-c', at('checkers.pid')];
  const command = ['keepalived', '-n', '-l', '-P', '-f', at('keepalived.conf'), ...files];
  new Managed([...on(`vip${n}`), ...command], { env: { PATH }, label: `keepalived ${n}` });
}

/** Opens a connection to the shared address every 25 ms; `gapMs` is the longest time without an answer. */
function watch(): { gapMs(): number; answered(): number; stop(): void } {
  let [last, gap, answered] = [performance.now(), 0, 0];
  const timer = setInterval(() => {
    const socket = connect({ host: SHARED, port: PORT });
    socket.setTimeout(300, () => socket.destroy());
    socket.on('error', () => {});
    socket.on('connect', () => socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'));
    socket.once('data', (data) => {
      socket.destroy();
      if (!data.toString().startsWith('HTTP/1.1 200')) return;
      gap = Math.max(gap, performance.now() - last);
      last = performance.now();
      answered++;
    });
  }, 25);
  atEnd(() => clearInterval(timer));
  return {
    gapMs: () => Math.max(gap, performance.now() - last),
    answered: () => answered,
    stop: () => clearInterval(timer),
  };
}

/**
 * Half a second with the page's settings, three and more with keepalived's defaults; the rest is for a busy machine.
 */
const FAILING_MS = promise(2_000);

async function settled(): Promise<void> {
  const one = watch();
  await eventually('the shared address answers', 15_000, () => (one.answered() > 40 ? true : undefined));
  one.stop();
}

/** A gateway on one of the two hosts. */
const start = (n: 1 | 2, more: { args?: string[]; data?: string } = {}) =>
  Gateway.start({ port: PORT, host: '0.0.0.0', publicHost: `${NET}.${n}`, prefix: on(`vip${n}`), ...more });

it('new connections to the shared address fail for a moment at most when a gateway or its machine dies', async ({
  skip,
}) => {
  const missing = MISSING ?? NO_POSTGRES;
  if (missing !== undefined) return skip(missing);
  network();
  const processes = await GatewayProcesses.start(0);
  const first = await start(1, { args: processes.flags(`${NET}.1:${LINKS_PORT}`) });
  await start(2, { args: processes.flags(`${NET}.2:${LINKS_PORT}`) });
  await keepalived(1);
  await keepalived(2);
  await settled();

  const killed = watch();
  await eventually('it is watched', 5_000, () => (killed.answered() > 20 ? true : undefined));
  await first.kill9();
  const before = killed.answered();
  await eventually('the other one answers', 10_000, () => (killed.answered() > before + 40 ? true : undefined));
  killed.stop();
  console.log(`a gateway was killed: new connections failed for ${killed.gapMs().toFixed(0)} ms`);
  expect(killed.gapMs()).toBeLessThan(FAILING_MS);

  await first.restart();
  await settled();
  const unplugged = watch();
  await eventually('it is watched', 5_000, () => (unplugged.answered() > 20 ? true : undefined));
  ip('link', 'set', 'vipend1', 'down');
  const then = unplugged.answered();
  await eventually('the other one answers', 10_000, () => (unplugged.answered() > then + 40 ? true : undefined));
  unplugged.stop();
  console.log(`a machine was unplugged: new connections failed for ${unplugged.gapMs().toFixed(0)} ms`);
  expect(unplugged.gapMs()).toBeLessThan(FAILING_MS);
});

/**
 * Runs a script of the page for one of two machines. Each has a directory in place of /var/lib/otela, `rsync` copies
 * between them, and the service is started by the test.
 */
async function runOnMachine(name: string, here: string, there: string): Promise<void> {
  const bin = await temporaryDirectory();
  const programs = {
    'otela-gateway': `exec ${NODE} ${GATEWAY_MAIN} "$@"`,
    rsync: `exec cp "$2" "\${3#*:}"`,
    systemctl: 'exit 0',
  };
  for (const [program, command] of Object.entries(programs)) {
    await writeFile(join(bin, program), `#!/bin/sh\n${command}\n`);
    await chmod(join(bin, program), 0o755);
  }
  const script = fileOf(PAGE, name)
    .replaceAll('gw2.example.org:/var/lib/otela', `gw2.example.org:${there}`)
    .replaceAll('/var/lib/otela', here);
  execFileSync('sh', ['-ec', script], { env: { PATH: `${bin}:${process.env.PATH}` }, stdio: 'inherit' });
}

it('a gateway that is restored from a copy on the second machine gets the shared address', async ({ skip }) => {
  if (MISSING !== undefined) return skip(MISSING);
  network();
  const [one, two] = [await temporaryDirectory(), await temporaryDirectory()];
  const first = await start(1, { data: join(one, 'data') });
  await keepalived(1);
  await keepalived(2);
  await settled();
  const key = await first.createKey();
  await runOnMachine('otela-copy', one, two);
  ip('link', 'set', 'vipend1', 'down');
  await first.kill9();

  await runOnMachine('otela-take-over', two, one);
  await start(2, { data: join(two, 'data') });
  await settled();
  const models = await fetch(`http://${SHARED}:${PORT}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  expect(models.status).toBe(200);
});
