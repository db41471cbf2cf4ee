/**
 * Agents on hosts of two clusters, as processes, with a gateway on a third network: parts of the network fail and
 * return. OTELA_LONG=1 keeps the gateway away for 2 minutes instead of 30 s.
 */
import { spawnSync } from 'node:child_process';
import { afterEach, expect, it } from 'vitest';
import { askNetwork, localAgents } from '../../agent/host/control-client.ts';
import type { NetworkRow } from '../../agent/host/control-protocol.ts';
import { startAgent } from '../support/agent.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually, type Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';
import { on, openWide, type Wide } from './network.ts';

afterEach(endAll);

/** From the start of a process until it is in every replica, on a busy machine. */
const TOGETHER_MS = 60_000;
const LONG = process.env.OTELA_LONG === '1';
const AWAY_MS = LONG ? 120_000 : 30_000;

interface Inhabitant {
  process: Managed;
  host: string;
  session: string;
  /** `HOST:PORT` of its mesh. */
  address: string;
  /** All members including itself, as it sees them. */
  network(): Promise<NetworkRow[]>;
}

/** One join token for each cluster of each network. */
const tokens = new WeakMap<Wide, Map<string, Promise<string>>>();

function tokenOf(wide: Wide, cluster: string): Promise<string> {
  const known = tokens.get(wide) ?? new Map<string, Promise<string>>();
  tokens.set(wide, known);
  const token = known.get(cluster) ?? wide.gateway.createJoinToken('lab', cluster);
  known.set(cluster, token);
  return token;
}

/** Each agent gets a different machine name, because observers on one machine do not count as independent. */
let machines = 0;
const onMachine = (host: string) => [
  ...on(host),
  'unshare',
  '--uts',
  'sh',
  '-c',
  'hostname "$0" && exec "$@"',
  `${host}-${++machines}`,
];

/** An agent without an engine. */
async function inhabitant(wide: Wide, host: string, args: string[] = []): Promise<Inhabitant> {
  const env = { XDG_RUNTIME_DIR: await temporaryDirectory('otela-mesh') };
  const token = await tokenOf(wide, host.slice(0, 2));
  const process = await startAgent({ gateways: [wide.gateway.url], token, prefix: onMachine(host), args, env });
  const status = () => localAgents(env).then((agents) => agents.find(({ status: { admitted } }) => admitted));
  const [session, address] = await eventually(`the agent on ${host} is in`, TOGETHER_MS, async () => {
    const agent = await status();
    const at = agent?.status.mesh?.addresses[0];
    return agent === undefined || at === undefined ? undefined : ([agent.status.session, at] as const);
  });
  const network = async () => {
    const agent = await status();
    return agent === undefined ? [] : askNetwork(agent);
  };
  return { process, host, session, address, network };
}

const seenBy = async (one: Inhabitant) =>
  new Map((await one.network()).map(({ session, liveness }) => [session, liveness]));

/** Waits until each sees exactly `seen`, alive; otherwise the error shows what each one sees. */
async function agree(what: string, withinMs: number, all: readonly Inhabitant[], seen: readonly Inhabitant[] = all) {
  let last = '';
  const looks = eventually(what, withinMs, async () => {
    const views = await Promise.all(all.map(seenBy));
    last = views
      .map((rows, at) => `${all[at]?.host}: ${[...rows].map(([who, how]) => `${who.slice(0, 6)} ${how}`)}`)
      .join('\n');
    const good = (rows: Map<string, string>) =>
      rows.size === seen.length && seen.every(({ session }) => rows.get(session) === 'alive');
    return views.every(good) ? true : undefined;
  });
  await looks.catch((error: unknown) => {
    throw new Error(`${what}: not within ${withinMs} ms. Last seen:\n${last}`, { cause: error });
  });
}

const suspectsOf = async (wide: Wide) =>
  (await wide.gateway.nodes()).filter(({ suspected }) => suspected).map(({ session }) => session);

/** Watches for `ms`; fails at the first moment at which `look` returns a finding. */
async function never(ms: number, look: () => Promise<string | undefined>): Promise<void> {
  const until = Date.now() + ms;
  while (Date.now() < until) {
    const found = await look();
    if (found !== undefined) throw new Error(found);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

/** Two hosts that drop packets to each other; they still reach the gateway and all other hosts. */
function part(a: string, b: string, how: 'add' | 'del'): void {
  const address = { c1h1: '10.1.0.11', c1h2: '10.1.0.12' };
  for (const [from, to] of [
    [a, b],
    [b, a],
  ]) {
    const target = to === 'c1h1' ? address.c1h1 : address.c1h2;
    spawnSync('ip', ['-n', from ?? '', 'route', how, 'blackhole', `${target}/32`]);
  }
}

it('two hosts of one cluster lose each other but not the gateway: nobody is suspected, news still cross, and it heals', async () => {
  const wide = await openWide();
  const first = await inhabitant(wide, 'c1h1');
  const second = await inhabitant(wide, 'c1h2');
  const third = await inhabitant(wide, 'c1h2');
  await agree('all know all', TOGETHER_MS, [first, second, third]);
  part('c1h1', 'c1h2', 'add');
  await never(15_000, async () => {
    const [suspect] = await suspectsOf(wide);
    if (suspect !== undefined) return `the gateway suspects ${suspect}`;
    for (const one of [first, second, third]) {
      for (const [session, liveness] of await seenBy(one))
        if (liveness === 'suspected') return `${one.host} suspects ${session}`;
    }
    return undefined;
  });
  const late = await inhabitant(wide, 'c1h2');
  await eventually(
    'news cross by the gateway',
    TOGETHER_MS,
    async () => (await seenBy(first)).has(late.session) || undefined,
  );
  part('c1h1', 'c1h2', 'del');
  await agree('all reach all again', TOGETHER_MS, [first, second, third, late]);
});

it.each([
  ['both ways', ['cut', 'c1h2']],
  ['so that it hears nothing', ['cut', 'c1h2', 'in']],
  ['so that nobody hears it', ['cut', 'c1h2', 'out']],
])(
  'a host that is cut off, %s, is suspected by all who could see it, and alive again when it is back',
  async (_, how) => {
    const wide = await openWide();
    const stay = [await inhabitant(wide, 'c1h1'), await inhabitant(wide, 'c1h1'), await inhabitant(wide, 'c1h1')];
    const cut = await inhabitant(wide, 'c1h2');
    const abroad = await inhabitant(wide, 'c2h1');
    await agree('all know all', TOGETHER_MS, [...stay, cut, abroad]);
    wide.network.link(...how);
    await eventually('not routed to any more', 60_000, async () => {
      for (const one of stay) if ((await seenBy(one)).get(cut.session) === 'alive') return undefined;
      return (await suspectsOf(wide)).includes(cut.session) || undefined;
    });
    for (const one of stay) expect((await seenBy(abroad)).get(one.session), 'others are untouched').toBe('alive');
    wide.network.link('heal', 'c1h2');
    await agree('alive again', TOGETHER_MS, [...stay, cut, abroad]);
    await eventually('at the gateway too', TOGETHER_MS, async () =>
      (await suspectsOf(wide)).length === 0 ? true : undefined,
    );
  },
);

it(`the gateway is away for ${AWAY_MS / 1_000} s${LONG ? '' : ' (shortened; OTELA_LONG=1 for 2 minutes)'}: clusters go on, what happened is known when it returns, and nobody alive is missing`, async () => {
  const wide = await openWide();
  const cluster = [await inhabitant(wide, 'c1h1'), await inhabitant(wide, 'c1h2'), await inhabitant(wide, 'c1h2')];
  const abroad = await inhabitant(wide, 'c2h1');
  const leaving = await inhabitant(wide, 'c1h1');
  await agree('all know all', TOGETHER_MS, [...cluster, abroad, leaving]);
  wide.network.link('cut', 'gateway');
  leaving.process.signal('SIGTERM');
  await agree('the cluster hears who left, without any gateway', 20_000, cluster, [...cluster, abroad]);
  await never(AWAY_MS, async () => {
    for (const one of cluster) {
      const rows = await seenBy(one);
      for (const other of cluster) if (rows.get(other.session) !== 'alive') return `${one.host} lost ${other.host}`;
    }
    return undefined;
  });
  wide.network.link('heal', 'gateway');
  await agree('both clusters agree', TOGETHER_MS, [...cluster, abroad]);
  await eventually('the gateway agrees', TOGETHER_MS, async () => {
    const there = (await wide.gateway.nodes()).filter(({ state, suspected }) => state !== 'LEFT' && !suspected);
    return there.length === 4 ? true : undefined;
  });
});

it('two clusters that use the same addresses know of each other by the gateway, and nobody takes one for the other', async () => {
  const wide = await openWide({ sameAddresses: true });
  const here = [
    await inhabitant(wide, 'c1h1', ['--mesh', ':7000']),
    await inhabitant(wide, 'c1h2', ['--mesh', ':7000']),
  ];
  const there = [
    await inhabitant(wide, 'c2h1', ['--mesh', ':7000']),
    await inhabitant(wide, 'c2h2', ['--mesh', ':7000']),
  ];
  const [a, b] = [here[0], there[0]];
  expect(a?.address).toBe(b?.address);
  await agree('all know all', TOGETHER_MS, [...here, ...there]);
  await never(10_000, async () => {
    for (const one of [...here, ...there]) {
      for (const [session, liveness] of await seenBy(one))
        if (liveness === 'suspected') return `${one.host} suspects ${session}`;
    }
    return (await suspectsOf(wide))[0];
  });
});

it('a stranger on the cluster’s network gets no byte, however often he comes; agents do not notice', async () => {
  const wide = await openWide();
  const agents = [await inhabitant(wide, 'c1h1'), await inhabitant(wide, 'c1h1')];
  await agree('all know all', TOGETHER_MS, agents);
  const [host = '', port = ''] = agents[0]?.address.split(':') ?? [];
  const stranger = `
    const { connect } = require('node:net');
    let got = 0, left = 600;
    const words = ['', 'GET / HTTP/1.1\\r\\n\\r\\n', 'otela-mesh-1\\n\\u0001\\u0000', 'CONNECT ${wide.gateway.url.slice(7)} HTTP/1.1\\r\\n\\r\\n', 'x'.repeat(3000)];
    for (let i = 0; i < 600; i++) {
      const socket = connect(${port}, '${host}', () => socket.write(words[i % words.length] || '\\n'));
      socket.on('data', (piece) => { got += piece.length; }).on('error', () => {});
      socket.on('close', () => { if (--left === 0) { console.log('got ' + got); process.exit(0); } });
    }`;
  const { stdout } = spawnSync('ip', [...on('c1h2').slice(1), NODE, '-e', stranger], {
    encoding: 'utf8',
    timeout: patience(300_000),
  });
  expect(stdout.trim()).toBe('got 0');
  await agree('all are still there', 10_000, agents);
});

it('a node without any way out is admitted and served through a relay on a login node, and only with its token', async () => {
  const wide = await openWide();
  const login = await inhabitant(wide, 'c1h1', ['--mesh', ':7000', '--offer-relay']);
  // Its only route is to its own cluster.
  spawnSync('ip', ['-n', 'c1h2', 'route', 'del', 'default']);
  const inner = await inhabitant(wide, 'c1h2', ['--relay', '10.1.0.11:7000']);
  await agree('both know both', TOGETHER_MS, [login, inner]);
  await eventually(
    'the gateway has its tunnel',
    TOGETHER_MS,
    async () =>
      (await wide.gateway.nodes()).some(({ session, suspected }) => session === inner.session && !suspected) ||
      undefined,
  );
});
