/**
 * `node test/soak/million-lines.ts [--batches 40] [--lines 50000] [--executed 2]`: two million lines in 40 batches are
 * accepted, checked and listed; two of the batches are executed, the others canceled. Prints the memory and disk that
 * this takes. `OTELA_TEST_HOST=processes`: two gateway processes on PostgreSQL.
 */
import { statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  begin,
  isOver,
  linesOf,
  memoryDuring,
  openBatchCluster,
  startNode,
  upload,
  watch,
} from '../../bench/batch/setup.ts';
import { PostgresPool } from '../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { HOST } from '../support/host.ts';
import { endAll } from '../support/processes.ts';

/** Of the gateway as one process. */
const MEMORY_MAX_MIB = 400;

const { values } = parseArgs({
  options: {
    batches: { type: 'string', default: '40' },
    lines: { type: 'string', default: '50000' },
    executed: { type: 'string', default: '2' },
  },
});
const [BATCHES, LINES, EXECUTED] = [Number(values.batches), Number(values.lines), Number(values.executed)];
const onPostgres = HOST.name === 'postgresql' || HOST.name === 'processes';

/** Bytes that the batches take beside their input files. */
async function storedBytes(data: string): Promise<number> {
  if (!onPostgres) {
    const objects = join(data, 'objects/BATCH');
    return (await readdir(objects)).reduce((sum, name) => sum + statSync(join(objects, name)).size, 0);
  }
  const pool = new PostgresPool({ url: `postgres://otela@/otela?host=${data}-postgres`, name: 'soak', most: 1 });
  const { rows } = await pool.query('SELECT pg_database_size(current_database())');
  await pool.close();
  return Number(rows[0]?.[0]);
}

const failures: string[] = [];
const cluster = await openBatchCluster(0);
const { client, gateway } = cluster;
const file = await upload(client, linesOf(LINES, 'unary'));
const startedAt = performance.now();
const {
  result: ids,
  before,
  most,
} = await memoryDuring(gateway, async () => {
  const made: string[] = [];
  for (let i = 0; i < BATCHES; i++) made.push(await begin(client, file));
  for (const id of made) await watch(client, id, ({ status }) => status === 'in_progress');
  return made;
});
const tookS = (performance.now() - startedAt) / 1_000;
const listed = new Map<string, number>();
for await (const { id, request_counts } of client.batches.list({ limit: 7 }))
  listed.set(id, request_counts?.total ?? 0);
const lines = ids.reduce((sum, id) => sum + (listed.get(id) ?? 0), 0);
if (listed.size !== BATCHES || lines !== BATCHES * LINES)
  failures.push(`${listed.size} batches with ${lines} lines are listed, not ${BATCHES} with ${BATCHES * LINES}`);
const mib = async () => ((await storedBytes(gateway.data)) / 1024 / 1024).toFixed(1);
console.log(
  `${lines} lines in ${listed.size} batches: checked in ${tookS.toFixed(0)} s, memory ${before.toFixed(0)} MiB before and ${most.toFixed(0)} at most,`,
);
console.log(`${await mib()} MiB on disk beside one input file`);
if (HOST.name === 'node' && most > MEMORY_MAX_MIB)
  failures.push(`the gateway took ${most.toFixed(0)} MiB, not ${MEMORY_MAX_MIB} at most`);

for (const id of ids.slice(EXECUTED)) await client.batches.cancel(id);
for (let i = 0; i < 2; i++) await startNode(cluster);
const executedAt = performance.now();
for (const [number, id] of ids.slice(0, EXECUTED).entries()) {
  const batch = await watch(client, id, isOver);
  const output = await (await client.files.content(batch.output_file_id ?? '')).text();
  const names = new Set(
    output
      .trimEnd()
      .split('\n')
      .map((line) => String(JSON.parse(line).custom_id)),
  );
  if (batch.status !== 'completed' || names.size !== LINES)
    failures.push(`${id} is ${batch.status} with ${names.size} different answers of ${LINES}`);
  const tookS = (performance.now() - executedAt) / 1_000;
  console.log(`${(number + 1) * LINES} lines after ${tookS.toFixed(0)} s, ${gateway.memoryMib().toFixed(0)} MiB`);
}
console.log(`${EXECUTED * LINES} lines executed in ${((performance.now() - executedAt) / 1_000).toFixed(0)} s`);
for (const id of ids.slice(EXECUTED)) {
  const batch = await watch(client, id, isOver);
  if (batch.status !== 'cancelled') failures.push(`${id} is ${batch.status}, not cancelled`);
}
for (const failure of failures) console.error(failure);
await endAll();
process.exit(failures.length === 0 ? 0 : 1);
