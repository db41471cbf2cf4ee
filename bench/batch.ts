/**
 * `npm run bench:batch [-- --lines 50000] [--agents 4]`: a batch through gateway and agents against the same lines straight at the engines, by
 * turns in one run. The engines answer at once and know no model. `--slurm`: batch-slurm.ts instead.
 */
import { parseArgs } from 'node:util';
import OpenAI, { toFile } from 'openai';
import { Pool } from 'undici';
import { startAgent } from '../test/support/agent.ts';
import { Gateway } from '../test/support/gateway.ts';
import { endAll, freePort } from '../test/support/processes.ts';
import { slurmBench } from './batch-slurm.ts';
import { MODEL } from './engine-answers.ts';
import { chat, PATH, startEngine } from './house.ts';
import { median } from './stats.ts';

const { values } = parseArgs({
  options: {
    lines: { type: 'string', default: '50000' },
    agents: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '3' },
    slurm: { type: 'boolean', default: false },
  },
});
if (values.slurm) process.exit(await slurmBench());
const [LINES, AGENTS, ROUNDS] = [Number(values.lines), Number(values.agents), Number(values.rounds)];
/** Requests in flight at each engine when it is asked directly: the window that agents may reach. */
const IN_FLIGHT = 64;

const body = chat('unary');
const line = (i: number) => JSON.stringify({ custom_id: `line-${i}`, method: 'POST', url: PATH, body });

async function direct(urls: readonly string[]): Promise<number> {
  const text = JSON.stringify(body);
  const pools = urls.map((url) => new Pool(url, { connections: IN_FLIGHT, pipelining: 1 }));
  let next = 0;
  const worker = async (pool: Pool) => {
    while (next++ < LINES) {
      const answer = await pool.request({
        method: 'POST',
        path: PATH,
        headers: { 'content-type': 'application/json' },
        body: text,
      });
      JSON.parse(await answer.body.text());
    }
  };
  const startedAt = performance.now();
  await Promise.all(pools.flatMap((pool) => Array.from({ length: IN_FLIGHT }, () => worker(pool))));
  const tookS = (performance.now() - startedAt) / 1_000;
  await Promise.all(pools.map((pool) => pool.destroy()));
  return LINES / tookS;
}

async function through(client: OpenAI, file: string): Promise<number> {
  const startedAt = performance.now();
  const { id } = await client.batches.create({ input_file_id: file, endpoint: PATH, completion_window: '24h' });
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (batch.status === 'completed') {
      const counts = JSON.stringify(batch.request_counts);
      if (batch.request_counts?.completed !== LINES) throw new Error(`not all lines: ${counts}`);
      return LINES / ((performance.now() - startedAt) / 1_000);
    }
    if (batch.status === 'failed') throw new Error(JSON.stringify(batch.errors));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const gateway = await Gateway.start({ port: await freePort() });
const [key, token] = await Promise.all([gateway.createKey('bench'), gateway.createJoinToken()]);
const urls: string[] = [];
for (let i = 0; i < AGENTS; i++) {
  const { url } = await startEngine();
  urls.push(url);
  await startAgent({ gateways: [gateway.url], token, engineUrl: url });
}
await gateway.serving(AGENTS, 30_000, MODEL);
const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 });
const input = Buffer.from(Array.from({ length: LINES }, (_, i) => line(i)).join('\n'));
const file = await client.files.create({ file: await toFile(input, 'bench.jsonl'), purpose: 'batch' });
const before = gateway.memoryMib();
const rates: { direct: number[]; batch: number[] } = { direct: [], batch: [] };
let most = before;
const watch = setInterval(() => {
  most = Math.max(most, gateway.memoryMib());
}, 250);
for (let round = 0; round < ROUNDS; round++) {
  rates.direct.push(await direct(urls));
  rates.batch.push(await through(client, file.id));
}
clearInterval(watch);
const [straight, batch] = [median(rates.direct), median(rates.batch)];
console.log(`| ${LINES} lines, ${AGENTS} agents, median of ${ROUNDS} | |\n| --- | --- |`);
console.log(`| straight at the engines | ${straight.toFixed(0)} lines/s |`);
console.log(
  `| as a batch, input check and output file included | ${batch.toFixed(0)} lines/s, ${(batch / straight).toFixed(2)} of direct |`,
);
console.log(`| gateway's memory | ${before.toFixed(0)} MiB before, ${most.toFixed(0)} MiB at most |`);
await endAll();
process.exit(0);
