/**
 * Hosts in network namespaces for tests: `netns-up`, `netns-link`, `netns-down`. One network at a time, because
 * namespaces have fixed names.
 */
import { spawnSync } from 'node:child_process';
import { appendFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { patience } from '../support/patience.ts';
import { atEnd, freePort, type Managed, temporaryDirectory } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { NODE, ROOT } from '../support/where.ts';

const HERE = join(ROOT, 'test/netns');
export const GATEWAY_ADDRESS = '198.51.100.10';

/**
 * Kinds of NAT (RFC 4787 §5, RFC 3489 §5), by the hosts from which they accept a new connection at a port that a host
 * behind them uses: all, those that it has contacted, or those that it has contacted at the same port. A symmetric NAT
 * is like the last one, and uses another port for each destination. All drop other connections without a word.
 */
export const NAT_KINDS = ['full-cone', 'address-restricted', 'port-restricted', 'symmetric'] as const;
export type NatKind = (typeof NAT_KINDS)[number];

/** Ports from which connections begin. */
const OUTGOING_PORTS = '32768-60999';

export interface NetworkOptions {
  /** One-way delay of each cluster's uplink. With an array there is one cluster per entry. */
  delayMs?: number | readonly [number, number, number];
  jitterMs?: number;
  /** Idle seconds after which the NAT forgets a connection. */
  natIdleSeconds?: number;
  /** True: both clusters use the same private addresses. */
  sameAddresses?: boolean;
}

export class Network {
  readonly #env: Record<string, string>;

  private constructor(env: Record<string, string>) {
    this.#env = env;
  }

  static async up(options: NetworkOptions = {}): Promise<Network> {
    const env: Record<string, string> = {
      PATH: `${process.env.PATH ?? ''}:/usr/sbin:/sbin`,
      NETNS_DIR: join(await temporaryDirectory('otela-netns'), 'net'),
    };
    if (options.natIdleSeconds !== undefined) env.NETNS_NAT_IDLE = String(options.natIdleSeconds);
    if (options.sameAddresses === true) env.NETNS_C2_NET = '10.1.0';
    const network = new Network(env);
    atEnd(() => void network.#run('netns-down'));
    if (typeof options.delayMs === 'object') env.NETNS_CLUSTERS = String(options.delayMs.length);
    const delay = options.delayMs === undefined ? [] : [String(options.delayMs), String(options.jitterMs ?? 0)];
    network.#run('netns-up', ...delay);
    return network;
  }

  #run(script: string, ...args: string[]): string {
    const done = spawnSync(join(HERE, script), args, { encoding: 'utf8', env: this.#env, timeout: patience(60_000) });
    if (done.status !== 0) throw new Error(`${script} ${args.join(' ')}: ${done.stdout}\n${done.stderr}`);
    return done.stdout;
  }

  /** `cut c1nat`, `heal c1nat`, `loss c1nat 5`, … */
  link(...args: string[]): void {
    this.#run('netns-link', ...args);
  }

  /** Changes the NAT of a cluster; by default it is `port-restricted`. Its connections to the first host are that host's. */
  nat(cluster: 1 | 2, kind: NatKind): void {
    const host = `10.${cluster}.0.11`;
    const known = kind === 'address-restricted' ? 'ip saddr @known' : '';
    const accepts = kind === 'full-cone' || kind === 'address-restricted';
    const rules = `
      flush table ip nat
      delete table ip nat
      table ip nat {
        set known { type ipv4_addr; flags timeout; timeout 2m; }
        chain out {
          type nat hook postrouting priority srcnat;
          oifname "wan0" add @known { ip daddr }
          oifname "wan0" masquerade ${kind === 'symmetric' ? 'fully-random' : ''}
        }
        chain in {
          type nat hook prerouting priority dstnat;
          ${accepts ? `iifname "wan0" ${known} tcp dport ${OUTGOING_PORTS} dnat to ${host}` : ''}
        }
      }
      flush chain ip firewall forward
      table ip firewall {
        chain forward {
          ct state established,related accept
          iifname "lan" oifname { "lan", "wan0" } accept
          ${accepts ? `iifname "wan0" ip daddr ${host} tcp dport ${OUTGOING_PORTS} accept` : ''}
        }
      }`;
    const command = ['netns', 'exec', `c${cluster}nat`, 'nft', '-f', '-'];
    const { status, stderr } = spawnSync('ip', command, { encoding: 'utf8', env: this.#env, input: rules });
    if (status !== 0) throw new Error(`nft: ${stderr}`);
  }

  /** Opens a route without NAT from the hosts of one cluster to those of the other, as a firewall rule would. */
  openWay(from: 1 | 2, to: 1 | 2): void {
    const ip = (...args: string[]) => {
      const { status, stderr } = spawnSync('ip', args, { encoding: 'utf8', env: this.#env });
      if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr}`);
    };
    ip('-n', `c${from}nat`, 'route', 'replace', `10.${to}.0.0/24`, 'via', `198.51.100.2${to}`);
    const rule = ['ip', 'firewall', 'forward', 'iifname', 'wan0', 'oifname', 'lan', 'accept'];
    ip('netns', 'exec', `c${to}nat`, 'nft', 'add', 'rule', ...rule);
  }

  /**
   * Opens `port` of the second host of a cluster to all networks, as a forwarded port does. Returns its name, which
   * processes that start later on any host resolve: within the cluster to the host, elsewhere to the NAT.
   */
  publish(cluster: 1 | 2 | 3, port: number): string {
    const [nat, inside, outside] = [`c${cluster}nat`, `10.${cluster}.0.12`, `198.51.100.2${cluster}`];
    const nft = (...args: string[]) => {
      const command = ['netns', 'exec', nat, 'nft', ...args];
      const { status, stderr } = spawnSync('ip', command, { encoding: 'utf8', env: this.#env });
      if (status !== 0) throw new Error(`nft ${args.join(' ')}: ${stderr}`);
    };
    const hook = '{ type nat hook prerouting priority dstnat ; }';
    nft('add', 'chain', 'ip', 'nat', 'in', hook);
    const match = ['tcp', 'dport', String(port)];
    nft('add', 'rule', 'ip', 'nat', 'in', 'iifname', 'wan0', ...match, 'dnat', 'to', `${inside}:${port}`);
    nft('add', 'rule', 'ip', 'firewall', 'forward', 'ip', 'daddr', inside, ...match, 'accept');
    const name = `gateway${cluster}`;
    for (const host of readdirSync('/etc/netns')) {
      const address = host.startsWith(`c${cluster}h`) ? inside : outside;
      appendFileSync(join('/etc/netns', host, 'hosts'), `${address} ${name}\n`);
    }
    return name;
  }

  /** Each TCP connection that the gateway's host has with cluster `n` on `port`, as `address:port` of the far side. */
  connections(n: 1 | 2, port: number): string[] {
    const args = ['netns', 'exec', 'gateway', 'ss', '-Htn', 'state', 'established', `( sport = :${port} )`];
    const { stdout } = spawnSync('ip', args, { encoding: 'utf8', env: this.#env });
    return stdout.split('\n').flatMap((line) => line.match(new RegExp(`198\\.51\\.100\\.2${n}:\\d+`)) ?? []);
  }
}

export const on = (host: string): string[] => ['ip', 'netns', 'exec', host];

export interface Wide {
  network: Network;
  gateway: Gateway;
  key: string;
  token: string;
  ask(path: string, body?: unknown, init?: RequestInit): Promise<Response>;
}

/** A gateway on its public host; clients run on this machine. */
export async function openWide(options: NetworkOptions = {}): Promise<Wide> {
  const network = await Network.up(options);
  const gateway = await Gateway.start({ prefix: on('gateway'), host: '0.0.0.0', publicHost: GATEWAY_ADDRESS });
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const ask = (path: string, body?: unknown, init: RequestInit = {}) =>
    fetch(`${gateway.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...init,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    });
  return { network, gateway, key, token, ask };
}

/** An agent and its engine on a host of a cluster. */
export async function settle(
  wide: Wide,
  host: string,
  models: string[] = [MODEL],
  args: string[] = [],
): Promise<Managed> {
  const port = await freePort();
  const command = [
    NODE,
    join(ROOT, 'test/support/engine.ts'),
    '--port',
    String(port),
    ...models.flatMap((model) => ['--model', model]),
  ];
  return startAgent({ gateways: [wide.gateway.url], token: wide.token, command, prefix: on(host), args });
}
