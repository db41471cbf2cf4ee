/**
 * `npm run sim` prints the table of docs/design/gossip.md. Every line names the seed and options that repeat it: `npm
 * run sim -- --seed 7 --only idle`, `--quick` for fewer nodes and trials.
 */
import { parseArgs } from 'node:util';
import {
  convergence,
  falseSuspicions,
  idle,
  killed,
  type Latencies,
  massStart,
  rejoining,
  republishing,
  silentHang,
} from './figures.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    quick: { type: 'boolean', default: false },
  },
});
const seed = Number(values.seed);
const sizes = values.quick ? [8, 32, 128] : [8, 32, 128, 512, 1024];
const updates = values.quick ? 20 : 60;
let missedFigures = 0;

function ms(value: number): string {
  if (Number.isNaN(value)) return '–';
  return value < 100 ? value.toFixed(1) : Math.round(value).toString();
}

function row(cells: (string | number)[], widths: number[]): void {
  console.log(cells.map((cell, i) => String(cell).padEnd(widths[i] ?? 0)).join('  '));
}

/** The verdict next to a figure and its requirement. */
function verdict(good: boolean): string {
  if (!good) missedFigures++;
  return good ? 'met' : 'MISSED';
}

function convergenceTable(): void {
  console.log('\nconvergence: ms from an owner’s word until the other agents have it');
  const widths = [18, 6, 8, 8, 8, 9, 7, 36];
  row(['nodes', 'loss', 'p50', 'p95', 'p99', 'last', 'missed', 'required (p50 / p95 / last)'], widths);
  const line = (name: string, loss: number, result: Latencies, limit: [number, number, number]) => {
    const good = result.p50 <= limit[0] && result.p95 <= limit[1] && result.last <= limit[2] && result.missed === 0;
    const { p50, p95, p99, last, missed } = result;
    const said = limit.map((value) => (value === Number.POSITIVE_INFINITY ? '–' : value)).join(' / ');
    row([name, `${loss * 100} %`, ms(p50), ms(p95), ms(p99), ms(last), missed, `${said} ${verdict(good)}`], widths);
  };
  const none = Number.POSITIVE_INFINITY;
  for (const size of sizes) {
    for (const loss of [0, 0.05]) {
      const result = convergence({ seed, clusters: [size], network: { loss } }, updates);
      line(`${size}`, loss, result, loss === 0 ? [10, 50, 1000] : [none, 50, 3000]);
    }
  }
  for (const size of sizes.filter((nodes) => nodes >= 32)) {
    for (const loss of [0, 0.05]) {
      const clusters = Array.from({ length: 4 }, () => size / 4);
      const result = convergence({ seed, clusters, network: { loss } }, updates);
      line(`${size} in 4 clusters`, loss, result, loss === 0 ? [none, 100, none] : [none, none, none]);
    }
  }
}

function trafficTable(): void {
  console.log('\ntraffic: bytes/s sent per node, 66 B per message included');
  const widths = [40, 10, 10, 16, 24];
  row(['', 'mean', 'largest', 'gateway msg/min', 'required'], widths);
  for (const size of values.quick ? [10, 50] : [10, 50, 1000]) {
    const { mean, max, perGatewayMinute } = idle({ seed, clusters: [size] }, 60);
    const good = max <= 500 && perGatewayMinute <= 12;
    const cells = [`${size} nodes idle`, mean.toFixed(0), max.toFixed(0), perGatewayMinute.toFixed(1)];
    row([...cells, `500, 12/min ${verdict(good)}`], widths);
  }
  if (!values.quick) {
    const { mean, max, perGatewayMinute } = idle({ seed, clusters: [250, 250, 250, 250] }, 60);
    const cells = ['1000 nodes in 4 clusters idle', mean.toFixed(0), max.toFixed(0), perGatewayMinute.toFixed(1)];
    row([...cells, `500, 12/min ${verdict(max <= 500 && perGatewayMinute <= 12)}`], widths);
  }
  const again = republishing({ seed, clusters: [10] }, 3000, 60);
  const cells = ['10 nodes, each a new record every 3 s', again.mean.toFixed(0), again.max.toFixed(0), ''];
  row([...cells, `8000 ${verdict(again.max <= 8000)}`], widths);
  const fresh = rejoining({ seed, clusters: [10] }, 3000, 60);
  const others = ['10 nodes, each a new session every 3 s', fresh.mean.toFixed(0), '', ''];
  row([...others, `8000 ${verdict(fresh.mean <= 8000)}`], widths);
}

/** No node knows any other: the only case in which everything must be sent everywhere. */
function startTable(): void {
  console.log(
    '\nstart: processes that begin at once and know one node; bytes/s sent per node until all replicas are equal',
  );
  const widths = [40, 10, 30];
  row(['', 'mean', ''], widths);
  const starts: [number, number][] = values.quick
    ? [[64, 2000]]
    : [
        [128, 4000],
        [256, 8000],
      ];
  for (const [nodes, withinMs] of starts) {
    const { equalAfterMs, bytesPerSecond } = massStart({ seed }, nodes, withinMs);
    const after = equalAfterMs === undefined ? 'never equal' : `equal ${ms(equalAfterMs)} ms after the last`;
    row([`${nodes} nodes start within ${withinMs / 1000} s`, bytesPerSecond.toFixed(0), after], widths);
  }
}

function detectionTable(): void {
  console.log('\ndetection: ms until the gateway routes to it no more');
  const widths = [40, 8, 8, 8, 7, 24];
  row(['', 'p50', 'p95', 'last', 'missed', 'required'], widths);
  const trials = values.quick ? 20 : 60;
  for (const size of [4, 8, 32, 128]) {
    for (const loss of [0, 0.01]) {
      const result = silentHang({ seed, clusters: [size], network: { loss } }, trials);
      const good = result.p95 <= 4000 && result.missed === 0;
      const cells = [`silent hang in ${size}, ${loss * 100} % loss`, ms(result.p50), ms(result.p95), ms(result.last)];
      row([...cells, result.missed, `p95 4000 ${verdict(good)}`], widths);
    }
  }
  const gone = killed({ seed, clusters: [32] }, 10);
  const cells = ['killed process in 32', ms(gone.p50), ms(gone.p95), ms(gone.last), 0];
  row([...cells, `100 ${verdict(gone.last <= 100)}`], widths);
  console.log('\nfalse suspicion: healthy nodes');
  for (const loss of [0, 0.01, 0.05]) {
    const hours = values.quick ? 0.1 : 1;
    const { nodeHours, suspected, unreachable } = falseSuspicions({ seed, clusters: [100], network: { loss } }, hours);
    const required = loss <= 0.01 ? `none ${verdict(suspected === 0)}` : '–';
    const detours = `${unreachable} paths given up for a while`;
    console.log(
      `${loss * 100} % loss, ${nodeHours} node-hours: ${suspected} suspected, ${detours}  (required: ${required})`,
    );
  }
}

const started = Date.now();
console.log(
  `seed ${seed}${values.quick ? ', quick' : ''}; options of shared/gossip/gossip-options.ts and test/sim/network.ts`,
);
const tables: [string, () => void][] = [
  ['convergence', convergenceTable],
  ['traffic', trafficTable],
  ['start', startTable],
  ['detection', detectionTable],
];
for (const [name, print] of tables) if (values.only === '' || name.startsWith(values.only)) print();
console.log(
  `\n${missedFigures === 0 ? 'every required figure is met' : `${missedFigures} figures missed`}; ${((Date.now() - started) / 1000).toFixed(0)} s`,
);
process.exitCode = missedFigures === 0 ? 0 : 1;
