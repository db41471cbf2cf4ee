/**
 * `npm run soak -- cluster`: three gateway processes in network namespaces share a PostgreSQL server with a synchronous
 * replica. Under load, each process is killed, and one is paused, cut off from PostgreSQL or from another process, has
 * a full disk or a wrong clock; all are upgraded; PostgreSQL crashes and fails over. Clients that know all addresses
 * see no error, each line of a batch has one result, no limit is passed by more than 2 %, and the usage equals what the
 * engines answered. `--minutes N`, `--agents N`, `--seed N`, `--only WORDS`: events with these words in their names.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { cannotRun, NO_POSTGRES } from '../support/abilities.ts';
import { endAll } from '../support/processes.ts';
import { seeded } from '../support/random.ts';
import { SoakedCluster } from './soaked-cluster.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '30' },
    agents: { type: 'string', default: '12' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
  },
});
const [minutes, agents, seed] = [values.minutes, values.agents, values.seed].map(Number) as [number, number, number];
/** Between two events, after all processes were ready. */
const CALM_MS = 3_000;

async function main(): Promise<number> {
  const missing = NO_POSTGRES ?? cannotRun('netns');
  if (missing !== undefined) {
    console.error(missing);
    return 1;
  }
  const random = seeded(seed);
  const startedAt = performance.now();
  const log = (line: string) => console.log(`${((performance.now() - startedAt) / 1_000).toFixed(1)} s: ${line}`);
  const cluster = await SoakedCluster.start({ agents, minutes, log });
  const endsAt = Date.now() + minutes * 60_000;
  const events = cluster.events(random).filter(({ name }) => name.includes(values.only));
  const counts: Record<string, number> = {};
  // Each event happens once, in an order that the seed chooses, before one happens again.
  for (let round = 0; round === 0 || Date.now() < endsAt; round++)
    for (const { name, happen } of shuffled(events, random)) {
      if (round > 0 && Date.now() >= endsAt) break;
      const sinceMs = performance.now();
      await happen();
      await cluster.allReady();
      counts[name] = (counts[name] ?? 0) + 1;
      log(`${name}: all ready after ${((performance.now() - sinceMs) / 1_000).toFixed(1)} s; ${cluster.errors}`);
      await delay(CALM_MS);
    }
  const findings = await cluster.findings();
  console.log(JSON.stringify({ minutes, agents, seed, events: counts, ...findings.counts }, null, 1));
  for (const finding of findings.missed) console.error(`MISSED: ${finding}`);
  return findings.missed.length === 0 ? 0 : 1;
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

try {
  process.exitCode = await main();
} catch (error) {
  // Printed here, because the end of the programs may fail, too.
  console.error(error);
  process.exitCode = 1;
} finally {
  await endAll();
}
