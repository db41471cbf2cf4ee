/**
 * A bridge of this machine with a network namespace for each host, so that the network between any two hosts can be
 * cut. Linux, root.
 */
import { spawnSync } from 'node:child_process';
import { atEnd } from '../support/processes.ts';

const BRIDGE = 'otela-soak';
const NETWORK = '10.87.0';
/** Address of this machine on the bridge. */
export const HERE = `${NETWORK}.254`;

const nameOf = (host: number) => `${BRIDGE}${host}`;
const addressOf = (host: number) => `${NETWORK}.${host + 1}`;

export class SoakedNetwork {
  readonly #hosts: number;

  private constructor(hosts: number) {
    this.#hosts = hosts;
  }

  /** @throws Error if this machine allows no namespaces, or if another run uses them */
  static up(hosts: number): SoakedNetwork {
    const network = new SoakedNetwork(hosts);
    ip('link', 'add', 'name', BRIDGE, 'type', 'bridge');
    atEnd(() => network.#down());
    ip('addr', 'add', `${HERE}/24`, 'dev', BRIDGE);
    ip('link', 'set', BRIDGE, 'up');
    for (let host = 0; host < hosts; host++) network.#add(host);
    return network;
  }

  #add(host: number): void {
    const [name, address] = [nameOf(host), addressOf(host)];
    ip('netns', 'add', name);
    ip('-n', name, 'link', 'set', 'lo', 'up');
    ip('-n', name, 'link', 'add', 'name', 'eth0', 'type', 'veth', 'peer', 'name', name, 'netns', '1');
    ip('link', 'set', name, 'master', BRIDGE, 'up');
    ip('-n', name, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    ip('-n', name, 'link', 'set', 'eth0', 'up');
    nft(host, 'add', 'table', 'inet', 'cut');
    nft(host, 'add', 'chain', 'inet', 'cut', 'in', '{ type filter hook input priority 0 ; }');
  }

  /** Command that runs a program on a host. */
  on(host: number): string[] {
    return ['ip', 'netns', 'exec', nameOf(host)];
  }

  address(host: number): string {
    return addressOf(host);
  }

  /** Packets between the two hosts are dropped without an answer, in both directions. */
  cut(a: number, b: number): void {
    nft(a, 'add', 'rule', 'inet', 'cut', 'in', 'ip', 'saddr', addressOf(b), 'drop');
    nft(b, 'add', 'rule', 'inet', 'cut', 'in', 'ip', 'saddr', addressOf(a), 'drop');
  }

  /** Ends all cuts. */
  heal(): void {
    for (let host = 0; host < this.#hosts; host++) nft(host, 'flush', 'chain', 'inet', 'cut', 'in');
  }

  #down(): void {
    for (let host = 0; host < this.#hosts; host++) spawnSync('ip', ['netns', 'del', nameOf(host)]);
    spawnSync('ip', ['link', 'del', BRIDGE]);
  }
}

function ip(...args: string[]): void {
  const { status, stderr } = spawnSync('ip', args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr}`);
}

function nft(host: number, ...args: string[]): void {
  ip('netns', 'exec', nameOf(host), 'nft', ...args);
}
