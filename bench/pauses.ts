/**
 * `node bench/pauses.ts [--pin]`: what one small request takes whose client pauses before it, by the length of the pause. `--pin`: workerd
 * on the first core, agent and public socket on the second (Linux, `taskset`). Beside it, what a cache line costs that lay idle for as long: tells
 * how much of a lone request is the machine finding its memory again.
 */
import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { endAll } from '../test/support/processes.ts';
import { seeded } from '../test/support/random.ts';
import { lineNs } from './cache-lines.ts';
import { Client } from './client.ts';
import { openHouse, request, warm } from './house.ts';
import { wrk } from './sections/throughput.ts';
import { median } from './stats.ts';

const PAUSES_MS = [0, 5, 20, 60];
const REQUESTS = 120;
/** About what one core's own cache holds. */
const IDLE_BYTES = 1024 * 1024;
const WARM_REQUESTS = 2_000;
const WARM_S = 10;

const { values } = parseArgs({ options: { pin: { type: 'boolean', default: false } } });
const house = await openHouse();
await warm(house.through, WARM_REQUESTS);
await wrk(house.through, 16, WARM_S);
if (values.pin) {
  const cores = { 0: [house.gateway.workerd()], 1: [house.agent.pid, house.gateway.process.pid] };
  for (const [core, pids] of Object.entries(cores))
    for (const pid of pids) execFileSync('taskset', ['-apc', core, String(pid)], { stdio: 'ignore' });
}
const random = seeded(1);
const client = new Client(house.through);
await client.open();
const bytes = request(house.through, 'unary');
for (const pause of PAUSES_MS) {
  const times: number[] = [];
  for (let n = 0; n < REQUESTS; n++) {
    // Between half and one and a half times as long: nothing here shall fall into step with a timer.
    if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + random())));
    const { status, complete, endMs } = await client.ask(bytes);
    if (status !== 200 || !complete) throw new Error(`answered ${status}`);
    times.push(endMs);
  }
  const line = await lineNs(IDLE_BYTES, pause, random);
  console.log(`after ${pause} ms: median ${median(times).toFixed(2)} ms; a cache line ${line.toFixed(0)} ns`);
}
client.close();
await endAll();
