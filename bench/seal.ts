/**
 * `npm run bench:seal -- [PART …]`: the cost of sealing, as ratios within one run. Parts: `work` (the client's work for
 * three candidates, the agent's to open and to seal a chunk), `request` (sequential requests), `unpaced` and `paced`
 * (streams); default: all. Engine and client are separate processes. `of clear` is by wall time, and by the CPU time of
 * gateway and agent, which other work on the machine hardly changes. `--requests N --streams N --events N --rounds N
 * --paced N`. Absolute times apply only to this machine.
 */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { endAll } from '../test/support/processes.ts';
import {
  between,
  byTurns,
  openSealCluster,
  PROCESSES,
  type RunRound,
  sealedRequests,
  type Took,
} from './seal-cluster.ts';
import { sealWork } from './seal-work.ts';

const PARTS = ['work', 'request', 'unpaced', 'paced'] as const;
const count = z.coerce.number().int().positive();
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    requests: { type: 'string', default: '200' },
    streams: { type: 'string', default: '64' },
    events: { type: 'string', default: '16000' },
    rounds: { type: 'string', default: '5' },
    paced: { type: 'string', default: '256' },
  },
});
const { requests, streams, events, rounds, paced } = z
  .object({ requests: count, streams: count, events: count, rounds: count, paced: count })
  .parse(values);
const named = z.array(z.enum(PARTS)).parse(positionals);
const parts = new Set(named.length === 0 ? PARTS : named);

const ms = (seconds: number) => (seconds * 1000).toFixed(2);

async function request(round: RunRound): Promise<void> {
  const { clear, sealed } = await sealedRequests(round, requests);
  console.log(
    `one request, median             clear ${ms(clear.wall)} ms, sealed ${ms(sealed.wall)} ms; CPU of gateway and agent ${ms(between(sealed) - between(clear))} ms more (required: 0.5)`,
  );
}

async function unpaced(round: RunRound): Promise<void> {
  for (const { perWrite, required } of [
    { perWrite: 8, required: 0.85 },
    { perWrite: 1, required: 0.35 },
  ]) {
    const hows = ['clear', 'sealed', 'unopened'] as const;
    const took = await byTurns(round, { streams, events, perWrite, everyMs: 0 }, hows, rounds);
    const [clear, sealed, unopened] = [took('clear'), took('sealed'), took('unopened')];
    const perEvent = (one: Took) => ((between(one) * 1e6) / streams / events).toFixed(1);
    console.log(
      `${streams} streams, ${perWrite} events a write     of clear, by the clock: ${(clear.wall / sealed.wall).toFixed(2)} opened, ${(clear.wall / unopened.wall).toFixed(2)} drained (required: ${required}); by CPU of gateway and agent: ${(between(clear) / between(unopened)).toFixed(2)}: ${perEvent(unopened)} µs an event for ${perEvent(clear)}; client ${(sealed.cpu.client / clear.cpu.client).toFixed(1)} times the CPU`,
    );
  }
}

/** Runs streams for ten seconds. `sampled` shows the delays if the client does not open every stream. */
async function pacedStreams(round: RunRound): Promise<void> {
  const hows = ['clear', 'sealed', 'sampled'] as const;
  const took = await byTurns(round, { streams: paced, events: 500, perWrite: 1, everyMs: 20 }, hows, 3);
  const late = hows.map((how) => `${how} ${took(how).p99.toFixed(1)} ms`).join(', ');
  console.log(
    `${paced} streams, 50 events/s       p99 from the engine's write to the client: ${late} (required: sealed as clear)`,
  );
  for (const how of hows) {
    const us = PROCESSES.map((name) => `${name} ${((took(how).cpu[name] * 1e6) / paced / 500).toFixed(1)}`);
    console.log(`    ${how.padEnd(28)}CPU an event: ${us.join(', ')} µs`);
  }
}

async function timed(part: (typeof PARTS)[number], run: () => Promise<void>): Promise<void> {
  if (!parts.has(part)) return;
  const from = performance.now();
  await run();
  console.log(`    ${part} ran for ${((performance.now() - from) / 1000).toFixed(0)} s`);
}

await timed('work', () => sealWork(requests));
if (parts.size > 1 || !parts.has('work')) {
  const round = await openSealCluster();
  await timed('request', () => request(round));
  await timed('unpaced', () => unpaced(round));
  await timed('paced', () => pacedStreams(round));
  await endAll();
}
