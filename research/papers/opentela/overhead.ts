/**
 * `npm run --prefix research paper:overhead [-- --requests N] [--json FILE] [--pictures DIR]`: the cost of a request
 * stage by stage, and from site to site, as in the paper's Figures 5 and 6. It needs root, because it makes three sites
 * in network namespaces: a public one with the gateway, and two behind NATs with added delay. Each has an agent with an
 * ingress and a mock engine. The sites behind NATs first meet at the public site's agent; then a direct path is opened.
 * The line itself is measured by ping and iperf3, if they are installed.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import * as z from 'zod';
import { localAgents } from '../../../agent/host/control-client.ts';
import { GATEWAY_ADDRESS, on, openWide, type Wide } from '../../../test/netns/network.ts';
import { startAgent } from '../../../test/support/agent.ts';
import { endAll, eventually, temporaryDirectory } from '../../../test/support/processes.ts';
import { NODE, ROOT } from '../../../test/support/where.ts';
import { type Baseline, measureLine, missingPrograms } from './baselines.ts';
import { barsSvg, tablesSvg } from './pictures.ts';
import { STAGES } from './stages.ts';

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '15' },
    json: { type: 'string' },
    pictures: { type: 'string', default: 'docs/pictures' },
  },
});

/** One-way delay of the two uplinks, in ms. */
const DELAY_MS = { c1: 10, c2: 25 };
const STARTED_MS = 180_000;
const ENGINE_PORT = '7999';
/** Concurrent clients of the last part. */
const CROWDS = [8, 32];
/** Address of the host behind the second NAT, once a way is open. */
const NAT_2_ADDRESS = '10.2.0.11';

interface Site {
  name: string;
  /** Network namespace. */
  host: string;
  args: string[];
}
const SITES: readonly Site[] = [
  { name: 'public', host: 'gateway', args: ['--mesh', ':7000', '--offer-relay'] },
  { name: 'NAT 1', host: 'c1h1', args: [] },
  { name: 'NAT 2', host: 'c2h1', args: [] },
];
const modelOf = ({ host }: Site) => `stand-in/${host}`;

const seenSchema = z.object({
  ms: z.number(),
  stages: z.record(z.string(), z.number()),
  tokensPerS: z.number(),
  mibPerS: z.number(),
  concurrent: z.array(
    z.object({
      clients: z.number(),
      ms: z.number(),
      requestsPerS: z.number(),
      tokensPerS: z.number(),
      mibPerS: z.number(),
    }),
  ),
});
type Seen = z.infer<typeof seenSchema>;

async function openSite(wide: Wide, site: Site) {
  const env = { XDG_RUNTIME_DIR: await temporaryDirectory('otela-overhead') };
  const command = [NODE, join(ROOT, 'test/support/engine.ts'), '--port', ENGINE_PORT, '--model', modelOf(site)];
  const args = ['--ingress', '127.0.0.1:0', ...site.args];
  const token = await wide.gateway.createJoinToken('lab', site.host);
  await startAgent({ gateways: [wide.gateway.url], token, command, prefix: on(site.host), args, env });
  return eventually(`the agent of ${site.name} serves`, STARTED_MS, async () => {
    const [agent] = await localAgents(env).catch(() => []);
    const { state, ingress } = agent?.status ?? {};
    if (state !== 'SERVING' || ingress === undefined) return undefined;
    const relayed = async () => (await localAgents(env))[0]?.status.mesh?.relayed ?? 0;
    return { ...site, url: ingress.url, key: readFileSync(ingress.key_file, 'utf8').trim(), relayed };
  });
}
type Open = Awaited<ReturnType<typeof openSite>>;

interface Measured {
  host: string;
  url: string;
  key: string;
}

async function measure({ host, url, key }: Measured, model: string, crowds: readonly number[] = []): Promise<Seen> {
  const file = join(ROOT, 'research/papers/opentela/site-client.ts');
  const client = [file, url, key, model, values.requests, crowds.join(',')];
  const { stdout } = await promisify(execFile)('ip', [...on(host).slice(1), NODE, ...client], { timeout: 300_000 });
  return seenSchema.parse(JSON.parse(stdout));
}

const asked = (from: Open, to: Site, crowds: readonly number[] = []) => measure(from, modelOf(to), crowds);

async function matrix(sites: readonly Open[]): Promise<Seen[][]> {
  const rows: Seen[][] = [];
  for (const from of sites) {
    const row: Seen[] = [];
    for (const to of sites) {
      row.push(await asked(from, to));
      console.log(
        `${from.name} → ${to.name}: ${row.at(-1)?.ms.toFixed(1)} ms, ${row.at(-1)?.tokensPerS.toFixed(0)} tokens/s`,
      );
    }
    rows.push(row);
  }
  return rows;
}

async function run(): Promise<void> {
  const wide = await openWide({ delayMs: DELAY_MS.c1 });
  wide.network.link('delay', 'c2nat', String(DELAY_MS.c2));
  // These NATs allow no direct connection before the way below is opened.
  for (const cluster of [1, 2] as const) wide.network.nat(cluster, 'symmetric');
  const sites: Open[] = [];
  for (const site of SITES) sites.push(await openSite(wide, site));
  const [open, one, two] = sites as [Open, Open, Open];
  for (const from of sites)
    for (const to of sites)
      await eventually(`${from.name} reaches ${to.name}`, STARTED_MS, () => asked(from, to).catch(() => undefined));
  console.log('Two sites meet at the public one’s agent:');
  const byGateway = await measure({ host: open.host, url: `${wide.gateway.url}/v1`, key: wide.key }, modelOf(one));
  const relayed = await matrix(sites);
  const engine = { host: one.host, url: `http://127.0.0.1:${ENGINE_PORT}/v1`, key: 'none' };
  const alone = await measure(engine, modelOf(one), CROWDS);
  const crowds: Crowd[] = [
    { name: 'the engine without OpenTela', seen: alone },
    { name: 'NAT 1, its own engine', seen: await asked(one, one, CROWDS) },
    {
      name: 'NAT 1 → public',
      seen: await asked(one, open, CROWDS),
      line: await lineOf(one.host, open, GATEWAY_ADDRESS),
    },
    { name: 'NAT 1 → NAT 2, relayed', seen: await asked(one, two, CROWDS) },
  ];
  wide.network.openWay(1, 2);
  wide.network.openWay(2, 1);
  await eventually('the direct way is taken', 120_000, async () => {
    await asked(one, two);
    return (await one.relayed()) + (await two.relayed()) === 0 || undefined;
  });
  console.log('With a direct way between them:');
  const direct = await matrix(sites);
  crowds.push({
    name: 'NAT 1 → NAT 2, direct',
    seen: await asked(one, two, CROWDS),
    line: await lineOf(one.host, two, NAT_2_ADDRESS),
  });
  report(byGateway, relayed, direct);
  printCrowds(crowds, alone.ms);
  save({ byGateway, relayed, direct, crowds });
}

interface Crowd {
  name: string;
  seen: Seen;
  line?: Baseline | undefined;
}

const MISSING = missingPrograms();
async function lineOf(from: string, to: Site, address: string): Promise<Baseline | undefined> {
  return MISSING.length > 0 ? undefined : measureLine(from, to.host, address);
}

/**
 * One request at a time beside the round trip of a ping. "Added" is the request's time, less the ping and the time of a
 * request to the engine itself. Then one stream beside iperf3, and concurrent clients.
 */
function printCrowds(crowds: readonly Crowd[], engineMs: number): void {
  const row = ({ name, seen, line }: Crowd): string[] => {
    const added = line === undefined ? Number.NaN : seen.ms - line.pingMs - engineMs;
    const [ping, iperf] = [line?.pingMs ?? Number.NaN, line?.mibPerS ?? Number.NaN];
    const one = [ping, seen.ms, added].map((ms) => ms.toFixed(2));
    const many = seen.concurrent.flatMap(({ ms, requestsPerS, tokensPerS }) => [
      `${ms.toFixed(1)} (${requestsPerS.toFixed(0)}/s)`,
      `${tokensPerS.toFixed(0)}`,
    ]);
    return [name, ...one, iperf.toFixed(1), seen.mibPerS.toFixed(1), ...many];
  };
  const head = ['', 'ping ms', 'request ms', 'added ms', 'iperf3 MiB/s', 'a stream MiB/s'];
  for (const clients of CROWDS) head.push(`${clients} clients ms`, `${clients} streams tokens/s`);
  printTable([head, ...crowds.map(row)]);
  if (MISSING.length > 0) console.log(`not installed: ${MISSING.join(', ')} (Debian: iputils-ping iperf3)`);
}

function printTable(rows: readonly (readonly string[])[]): void {
  const widths = (rows[0] ?? []).map((_, c) => Math.max(...rows.map((row) => row[c]?.length ?? 0)));
  for (const row of rows) console.log(row.map((text, c) => text.padEnd(widths[c] ?? 0)).join('  '));
}

function machineText(): string {
  const load = loadavg()[0]?.toFixed(1);
  return `${cpus().length} cores, load ${load}; lines ${DELAY_MS.c1} and ${DELAY_MS.c2} ms one way; stand-in engines`;
}

function save(results: object): void {
  if (values.json === undefined) return;
  writeFileSync(values.json, `${JSON.stringify({ where: machineText(), ...results }, null, 2)}\n`);
}

function report(byGateway: Seen, relayed: Seen[][], direct: Seen[][]): void {
  const at = (from: Seen[][], row: number, column: number) => from[row]?.[column];
  const cases: [string, Seen | undefined][] = [
    ['gateway → NAT 1', byGateway],
    ['ingress, its own engine', at(relayed, 1, 1)],
    ['ingress NAT 1 → public', at(relayed, 1, 0)],
    ['ingress NAT 1 → NAT 2, relayed', at(relayed, 1, 2)],
    ['ingress NAT 1 → NAT 2, direct', at(direct, 1, 2)],
  ];
  const rttMs = [2 * DELAY_MS.c1, 0, 2 * DELAY_MS.c1, 2 * (DELAY_MS.c1 + DELAY_MS.c2), 2 * (DELAY_MS.c1 + DELAY_MS.c2)];
  const head = ['median ms', 'line', ...STAGES, 'client sees'];
  const rows = cases.map(([name, seen], n) => [
    name,
    String(rttMs[n]),
    ...STAGES.map((stage) => (seen?.stages[stage] ?? Number.NaN).toFixed(2)),
    (seen?.ms ?? Number.NaN).toFixed(2),
  ]);
  printTable([head, ...rows]);
  const where = machineText();
  console.log(`\n${where}. The line is in forward, engine and return.`);
  mkdirSync(values.pictures, { recursive: true });
  const bars = cases.map(([name, seen]) => ({ name, parts: STAGES.map((stage) => seen?.stages[stage] ?? 0) }));
  const table = (title: string, from: Seen[][], of: (seen: Seen) => number) => ({
    title,
    cells: from.map((row) => row.map(of)),
  });
  const names = SITES.map(({ name }) => name);
  const drawn: [string, string][] = [
    ['overhead-stages', barsSvg(`Median of ${values.requests} unary requests by stage (${where})`, 'ms', STAGES, bars)],
    [
      'overhead-sites',
      tablesSvg(`From site to site: the asking site by row, the serving site by column (${where})`, names, [
        table('ms, the NATs relayed', relayed, ({ ms }) => ms),
        table('ms, direct', direct, ({ ms }) => ms),
        table('tokens/s, relayed', relayed, ({ tokensPerS }) => tokensPerS),
        table('tokens/s, direct', direct, ({ tokensPerS }) => tokensPerS),
      ]),
    ],
  ];
  for (const [name, svg] of drawn) {
    writeFileSync(join(values.pictures, `${name}.svg`), svg);
    console.log(`wrote ${join(values.pictures, `${name}.svg`)}`);
  }
}

try {
  await run();
} finally {
  await endAll();
}
