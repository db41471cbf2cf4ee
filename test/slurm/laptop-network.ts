/**
 * A laptop behind NAT, a login node, and two compute nodes that reach only the login node, in network namespaces:
 *
 *     otl-laptop ── otl-nat (NAT) ── otl-login 203.0.113.10
 *     192.168.77.2                    └ bridge 10.9.0.1 ── otl-n1 10.9.0.11, otl-n2 10.9.0.12
 *
 * Files and processes are shared; addresses, ports and 127.0.0.1 are those of each namespace.
 */
import { spawnSync } from 'node:child_process';
import { atEnd } from '../support/processes.ts';

const NAMESPACES = ['otl-laptop', 'otl-nat', 'otl-login', 'otl-n1', 'otl-n2'] as const;
type Namespace = (typeof NAMESPACES)[number];

const LOGIN_ADDRESS = '203.0.113.10';

export const on = (namespace: Namespace): string[] => ['ip', 'netns', 'exec', namespace];

function run([file = '', ...args]: string[], mayFail = false): string {
  const done = spawnSync(file, args, { encoding: 'utf8', timeout: 30_000 });
  if (done.status !== 0 && !mayFail) throw new Error(`${file} ${args.join(' ')}: ${done.stdout}${done.stderr}`);
  return `${done.stdout}${done.stderr}`;
}

function ip(namespace: Namespace, ...args: string[]): void {
  run(['ip', '-n', namespace, ...args]);
}

/** Joins two namespaces by a pair of interfaces. */
function joined(a: Namespace, nameA: string, b: Namespace, nameB: string): void {
  run(['ip', 'link', 'add', nameA, 'netns', a, 'type', 'veth', 'peer', 'name', nameB, 'netns', b]);
  ip(a, 'link', 'set', nameA, 'up');
  ip(b, 'link', 'set', nameB, 'up');
}

export class LaptopNetwork {
  /** Namespaces of Slurm's four nodes. */
  readonly nodes = ['otl-n1', 'otl-n1', 'otl-n2', 'otl-n2'];
  readonly login = { address: LOGIN_ADDRESS, prefix: on('otl-login') };
  readonly laptop = on('otl-laptop');

  /** Makes the network; `endAll` removes it. */
  static up(): LaptopNetwork {
    atEnd(() => LaptopNetwork.#down());
    LaptopNetwork.#down();
    for (const namespace of NAMESPACES) {
      run(['ip', 'netns', 'add', namespace]);
      ip(namespace, 'link', 'set', 'lo', 'up');
    }
    joined('otl-laptop', 'eth0', 'otl-nat', 'lan');
    joined('otl-nat', 'wan', 'otl-login', 'wan');
    ip('otl-laptop', 'addr', 'add', '192.168.77.2/24', 'dev', 'eth0');
    ip('otl-nat', 'addr', 'add', '192.168.77.1/24', 'dev', 'lan');
    ip('otl-nat', 'addr', 'add', '203.0.113.1/24', 'dev', 'wan');
    ip('otl-login', 'addr', 'add', `${LOGIN_ADDRESS}/24`, 'dev', 'wan');
    ip('otl-laptop', 'route', 'add', 'default', 'via', '192.168.77.1');
    ip('otl-login', 'link', 'add', 'inner', 'type', 'bridge');
    ip('otl-login', 'link', 'set', 'inner', 'up');
    ip('otl-login', 'addr', 'add', '10.9.0.1/24', 'dev', 'inner');
    for (const [n, node] of (['otl-n1', 'otl-n2'] as const).entries()) {
      joined(node, 'eth0', 'otl-login', `node${n}`);
      ip('otl-login', 'link', 'set', `node${n}`, 'master', 'inner');
      ip(node, 'addr', 'add', `10.9.0.${11 + n}/24`, 'dev', 'eth0');
    }
    run([...on('otl-nat'), 'sysctl', '-qw', 'net.ipv4.ip_forward=1']);
    const nft = [...on('otl-nat'), 'nft'];
    run([...nft, 'add', 'table', 'ip', 'nat']);
    run([...nft, 'add', 'chain', 'ip', 'nat', 'post', '{ type nat hook postrouting priority 100 ; }']);
    run([...nft, 'add', 'rule', 'ip', 'nat', 'post', 'oifname', 'wan', 'masquerade']);
    return new LaptopNetwork();
  }

  static #down(): void {
    for (const namespace of NAMESPACES) run(['ip', 'netns', 'delete', namespace], true);
  }

  /** Closes the laptop's lid, or opens it. */
  laptopLink(state: 'up' | 'down'): void {
    ip('otl-laptop', 'link', 'set', 'eth0', state);
    // Linux forgets the routes of an interface that goes down.
    if (state === 'up') ip('otl-laptop', 'route', 'replace', 'default', 'via', '192.168.77.1');
  }

  /** The output of a command in a namespace. Its exit code does not count. */
  output(namespace: Namespace, ...command: string[]): string {
    return run([...on(namespace), ...command], true);
  }
}
