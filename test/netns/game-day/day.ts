/**
 * A day at a small lab: two gateways with one database, behind TLS on separate hosts, two clusters behind NAT with six
 * agents each, Prometheus with the alerts of deploy/ (with shorter waits), and clients that call both gateways all day.
 */
import { execFile } from 'node:child_process';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { buildPrograms } from '../../chaos/programs.ts';
import { startAgent } from '../../support/agent.ts';
import { installAgent, installGateway } from '../../support/as-version.ts';
import { selfSigned, trust } from '../../support/certificate.ts';
import { certificateThatEnds } from '../../support/certificate-that-ends.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { type FileSystem, mountFileSystem } from '../../support/file-system.ts';
import { Gateway } from '../../support/gateway.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { atEnd, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { Prometheus, shortenedRules } from '../../support/prometheus.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { type Answered, type TwoAddresses, twoAddresses } from '../../support/two-addresses.ts';
import { NODE, ROOT } from '../../support/where.ts';
import { GATEWAY_ADDRESS, Network, on } from '../network.ts';

/** This machine, which is on the gateways' network: the host of the second gateway and of Prometheus. */
const SECOND_ADDRESS = '198.51.100.254';
const METRICS_TOKEN = 'only-for-prometheus';
export const HOSTILE = 'mallory';
export const AGENTS = 12;
const HOSTS = ['c1h1', 'c1h2', 'c2h1', 'c2h2'] as const;
const ENGINE_PORT = 8000;
/** Size of the gateway's disk: a few minutes of records and logs, and enough space to start. */
const DISK_MIB = 192;
const PER_SECOND = 8;
const START_MS = 120_000;

export interface Day {
  network: Network;
  first: Gateway;
  second: Gateway;
  /** The second gateway's environment; a change takes effect at its next start. */
  secondEnv: Record<string, string>;
  /** Makes the operator's programs trust the gateways. */
  env: Record<string, string>;
  /** Path of `otela-gateway`. */
  program: string;
  client: TwoAddresses;
  /** Newest responses to other programs. */
  others: Answered[];
  prometheus: Prometheus;
  /** The first gateway's disk, or the reason that there is none. */
  disk: FileSystem | string;
  /** Path of the institution's root key. */
  rootKey: string;
  /** The engine of the provider that turns hostile. */
  hostile: Engine;
  /** `otela-gateway …` at the first gateway, as its operator types it. */
  operate(...args: string[]): Promise<string>;
  /** The same at a given gateway. */
  ask(gateway: Gateway, ...args: string[]): Promise<string>;
  /** Sets the behavior of a host's engine directly, without gateway and agent. */
  control(host: (typeof HOSTS)[number], behaviour: object): Promise<void>;
  /** Installs another version at the path from which gateways and agents start. */
  install(version: string): Promise<void>;
  /** Replaces the gateways' TLS certificate. */
  renewTls(): Promise<void>;
}

const run = promisify(execFile);

export async function openDay(): Promise<Day> {
  const directory = await temporaryDirectory('otela-game-day');
  const at = (...path: string[]) => join(directory, ...path);
  const gatewayFile = at('gateway/dist/otela-gateway.js');
  const agentFile = at('agent/otela-agent.js');
  const install = async (version: string) => {
    await Promise.all([installGateway(gatewayFile, version), installAgent(agentFile, version)]);
  };
  const [network, programs] = await Promise.all([Network.up(), buildPrograms(), install('0.7.0')]);

  const tls = await certificates(directory);
  const env: Record<string, string> = {
    OTELA_METRICS_TOKEN: METRICS_TOKEN,
    REQUEST_LOG: 'all',
    NODE_EXTRA_CA_CERTS: tls.authorities,
    NODE_OPTIONS: `--import=${pathToFileURL(join(ROOT, 'test/support/clock-offset.ts')).href}`,
  };
  const secondEnv = { ...env };
  const disk = mountFileSystem({ sizeMiB: DISK_MIB });
  const data = typeof disk === 'string' ? at('gw1') : join(disk.path, 'gw1');
  const rootKey = await certificateThatEnds(data);
  const processes = await GatewayProcesses.start(0);
  const [port, links] = [await freePort(), await freePort()];
  const common = (address: string) => ({
    ...{ host: '0.0.0.0', main: gatewayFile, port, publicHost: address },
    args: [
      ...processes.flags(`${address}:${links}`),
      ...['--url', `https://${address}:${port}`, '--tls-cert', tls.cert, '--tls-key', tls.key],
    ],
  });
  const first = await Gateway.start({ ...common(GATEWAY_ADDRESS), data, prefix: on('gateway'), env });
  const second = await Gateway.start({ ...common(SECOND_ADDRESS), env: secondEnv });
  const ask = async (gateway: Gateway, ...args: string[]) => {
    const flags = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
    const { stdout } = await run(NODE, [gatewayFile, ...args, ...flags], { env: { ...process.env, ...env } });
    return stdout;
  };

  for (const host of HOSTS)
    new Managed(
      [...on(host), NODE, programs.engine, '--port', String(ENGINE_PORT), '--model', MODEL, '--tokens', '2'],
      { label: `engine of ${host}` },
    );
  const hostile = await startEngine({ models: [MODEL], host: SECOND_ADDRESS });
  atEnd(() => hostile.close());
  const token = async (provider: string, cluster: string) => first.createJoinToken(provider, cluster);
  const tokens = { c1: await token('lab', 'c1'), c2: await token('lab', 'c2'), m: await token(HOSTILE, 'c2') };
  for (let n = 0; n < AGENTS; n++) {
    const host = HOSTS[n % HOSTS.length] ?? 'c1h1';
    const last = n === AGENTS - 1;
    await startAgent({
      gateways: [first.url, second.url],
      token: last ? tokens.m : host.startsWith('c1') ? tokens.c1 : tokens.c2,
      engineUrl: last ? hostile.url : `http://127.0.0.1:${ENGINE_PORT}`,
      main: agentFile,
      prefix: on(host),
      env: { NODE_EXTRA_CA_CERTS: tls.authorities },
    });
  }
  for (const gateway of [first, second]) await gateway.serving(AGENTS, START_MS);

  const prometheus = await Prometheus.start({
    gateway: {
      url: `${first.url}/metrics`,
      token: METRICS_TOKEN,
      also: [`${SECOND_ADDRESS}:${port}`],
      ca: tls.authorities,
    },
    agents: { hosts: [], token: METRICS_TOKEN },
    rules: shortenedRules(),
    intervalS: 1,
  });
  const key = await first.createKey('people');
  const client = twoAddresses({ addresses: [first, second], key, perSecond: PER_SECOND });
  return {
    ...{ network, first, second, secondEnv, env, program: gatewayFile, client, prometheus, disk, rootKey, hostile },
    ...{ install, ask, others: [] },
    operate: (...args) => ask(first, ...args),
    control: async (host, behaviour) => {
      const url = `http://127.0.0.1:${ENGINE_PORT}/__control`;
      const [ip = '', ...args] = [...on(host), 'curl', '-sf', '-d', JSON.stringify({ behaviour }), url];
      await run(ip, args);
    },
    renewTls: tls.renew,
  };
}

/**
 * The certificate of both gateways, which is valid for two more days, and its successor. A client that trusts
 * `authorities` trusts both.
 */
async function certificates(directory: string) {
  const names = [`IP:${GATEWAY_ADDRESS}`, `IP:${SECOND_ADDRESS}`];
  const [old, next] = [
    selfSigned(await temporaryDirectory(), 'old', names),
    selfSigned(await temporaryDirectory(), 'next', names, 90),
  ];
  const place = { cert: join(directory, 'cert.pem'), key: join(directory, 'key.pem') };
  const put = async ({ cert, key }: { cert: string; key: string }) => {
    await Promise.all([copyFile(cert, place.cert), copyFile(key, place.key)]);
  };
  await put(old);
  const authorities = join(directory, 'authorities.pem');
  await writeFile(authorities, (await Promise.all([old, next].map(({ cert }) => readFile(cert)))).join('\n'));
  for (const { cert } of [old, next]) trust(await readFile(cert, 'utf8'));
  return { ...place, authorities, renew: () => put(next) };
}
