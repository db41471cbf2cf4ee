/**
 * `npm run --prefix research bench:kv-routing -- conversation_trace.jsonl`: what a router would gain by knowing the
 * caches of all nodes, on Mooncake's trace of conversations.
 */
import { readFileSync } from 'node:fs';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { percent, table } from '../../scheduler/validate/text-table.ts';
import { type Fleet, ROUTERS, replay } from './kv-routing.ts';
import { readMooncake } from './mooncake-trace.ts';

const [path] = process.argv.slice(2);
if (path === undefined) {
  console.error('usage: npm run --prefix research bench:kv-routing -- FILE');
  process.exit(2);
}
const requests = readMooncake(readFileSync(path, 'utf8'));
const FLEET = { blockTokens: 512, prefillRate: 8_000, tokenSeconds: 0.03, speed: 1 };
const FLEETS: readonly Fleet[] = [
  { ...FLEET, nodes: 8, blocks: 1_000 },
  { ...FLEET, nodes: 8, blocks: 4_000 },
  { ...FLEET, nodes: 32, blocks: 1_000, speed: 4 },
];
const rows: string[][] = [];
for (const fleet of FLEETS)
  for (const router of ROUTERS) {
    const { cached, mean, p95 } = replay(requests, fleet, router, seededRandom(1));
    const cache = `${fleet.nodes} nodes, ${fleet.blocks} blocks`;
    rows.push([cache, router, percent(cached), mean.toFixed(2), p95.toFixed(2)]);
  }
console.log(
  `${requests.length} requests, ${new Set(requests.map(({ conversation }) => conversation)).size} conversations`,
);
console.log(table(['fleet', 'router', 'tokens from a cache', 'first token, mean s', 'p95 s'], rows));
