/**
 * `npm run bench:batch -- --slurm`: how much of a batch survives jobs that are killed one after another, in a real
 * Slurm with mock engines of two speeds. Reloading: each job takes a chunk, loads its model, runs the chunk and returns
 * all of it at its end, as one `vllm run_batch` per chunk does. Keeping: agents load once, and commit line by line. It
 * repeats the run pv5 of the paper (arXiv 2509.13201, see research/papers/context). The clock runs
 * COMPRESSION times faster, and one line stands for INFERENCES inferences of the paper.
 */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { chartsSvg, type Series } from '../shared/text/svg-chart.ts';
import { neverRejects } from '../shared/timing/in-background.ts';
import { Cluster, type Job } from '../test/slurm/cluster.ts';
import { Gateway } from '../test/support/gateway.ts';
import { atEnd, endAll, eventually } from '../test/support/processes.ts';
import { ROOT } from '../test/support/where.ts';

const COMPRESSION = 20;
const INFERENCES = 10;
const JOBS = 20;
/**
 * Seconds per line, for each half of the jobs: the paper measured one inference on an A10 and on a TITAN X (Pascal).
 * `LOAD_S`: the paper's time for loading a model.
 */
const SPEEDS = [0.2727, 0.387].map((s) => (s * INFERENCES) / COMPRESSION);
const LOAD_S = 14.8 / COMPRESSION;
/** After ten minutes one job is killed per minute, the fast ones first. */
const EVICTION_MS = 60_000 / COMPRESSION;
const FIRST_EVICTION_MS = 10 * EVICTION_MS;
/** Lines of 100 inferences, the best chunk size in the paper. */
const CHUNK_LINES = 100 / INFERENCES;
const LINES = 15_000;
const MODEL = 'stand-in/model-1';
/** The paper's runs begin when this many of the jobs have joined. */
const JOINED = Math.ceil(0.95 * JOBS);
const START_MS = 150_000;

const speedOf = (job: number) => SPEEDS[job < JOBS / 2 ? 0 : 1] ?? 0;
const SBATCH = ['--cpus-per-task=1', '--mem=100'];

interface Run {
  /** Seconds since the start, and finished lines. */
  points: [number, number][];
}

/** Kills one job after another and counts until none is left. */
async function watched(jobs: readonly Job[], done: () => Promise<number>): Promise<Run> {
  const startedAt = performance.now();
  const points: Run['points'] = [[0, 0]];
  let evicted = 0;
  while (evicted < jobs.length) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    const ms = performance.now() - startedAt;
    points.push([(ms / 1_000) * COMPRESSION, (await done()) * INFERENCES]);
    if (ms >= FIRST_EVICTION_MS + evicted * EVICTION_MS) jobs[evicted++]?.cancel('--full', '--signal=KILL');
  }
  return { points };
}

/** A bash mock of jobs that start an engine for each chunk; chunks of killed jobs return when their connection ends. */
async function reloading(cluster: Cluster): Promise<Run> {
  let [done, asked] = [0, 0];
  const started = Promise.withResolvers<void>();
  const server = createServer((req, res) => {
    if (req.url === '/done') done += CHUNK_LINES;
    else asked += 1;
    neverRejects((req.url === '/done' ? Promise.resolve() : started.promise).then(() => res.end()));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const base = `http://127.0.0.1:${address.port}`;
  const jobs: Job[] = [];
  for (let i = 0; i < JOBS; i++) {
    const work = `sleep ${LOAD_S.toFixed(3)}; sleep ${(CHUNK_LINES * speedOf(i)).toFixed(3)}`;
    const script = `while curl -sf ${base}/next; do ${work}; curl -sf ${base}/done; done`;
    jobs.push(await cluster.submit({ sbatch: SBATCH, script }));
  }
  await eventually('jobs have begun', START_MS, () => (asked >= JOINED ? true : undefined));
  started.resolve();
  const run = await watched(jobs, async () => done);
  server.closeAllConnections();
  return run;
}

async function keeping(cluster: Cluster): Promise<Run> {
  const gateway = await Gateway.start();
  const key = await gateway.createKey('bench');
  const token = await cluster.secret('token', await gateway.createJoinToken('hpc', 'alps'));
  const jobs: Job[] = [];
  for (let i = 0; i < JOBS; i++) {
    const engine = `--slots 1 --tokens 4 --rate ${(4 / speedOf(i)).toFixed(2)} --start-after-ms ${Math.round(LOAD_S * 1_000)}`;
    const script = await cluster.agentLine('exec', gateway.url, token, MODEL, '--max-running 1', engine);
    jobs.push(await cluster.submit({ sbatch: SBATCH, script }));
  }
  await eventually('agents have joined', START_MS, async () =>
    (await gateway.nodes()).filter(({ state }) => state === 'SERVING').length >= JOINED ? true : undefined,
  );
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 3 });
  const line = (i: number) =>
    JSON.stringify({
      custom_id: `line-${i}`,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: MODEL, messages: [] },
    });
  const lines = Array.from({ length: LINES }, (_, i) => line(i)).join('\n');
  const file = await client.files.create({ file: await toFile(Buffer.from(lines), 'in.jsonl'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  await eventually('the batch is checked', START_MS, async () =>
    (await client.batches.retrieve(id)).status === 'in_progress' ? true : undefined,
  );
  return watched(jobs, async () => (await client.batches.retrieve(id)).request_counts?.completed ?? 0);
}

/** Inferences that the jobs' engines could have run in their time without losses and loading. */
function ideal(): number {
  const seconds = (job: number) => (FIRST_EVICTION_MS + job * EVICTION_MS) / 1_000;
  return Array.from({ length: JOBS }, (_, i) => (seconds(i) / speedOf(i)) * INFERENCES).reduce((a, b) => a + b, 0);
}

const last = ({ points }: Run) => points.at(-1)?.[1] ?? 0;

/**
 * Prints the table and draws docs/pictures/batch-slurm.svg. Exit code 1 if keeping the context gains less than in the
 * paper's run.
 */
export async function slurmBench(): Promise<number> {
  const cluster = await Cluster.up();
  const [reload, keep] = [await reloading(cluster), await keeping(cluster)];
  await endAll();
  const gain = last(keep) / last(reload) - 1;
  const most = ideal();
  const percent = (part: number) => `${(100 * part).toFixed(0)} %`;
  console.log(
    `| ${JOBS} jobs, one killed each minute after ten, ${COMPRESSION} times as fast | inferences | of the ideal |`,
  );
  console.log('| --- | --- | --- |');
  console.log(`| model loaded for each chunk of 100 | ${last(reload)} | ${percent(last(reload) / most)} |`);
  console.log(`| context kept, lines committed one by one | ${last(keep)} | ${percent(last(keep) / most)} |`);
  console.log(`| gained (the paper's pv5: 37 %) | ${percent(gain)} | |`);
  const series: Series[] = [
    { name: 'context kept, lines committed one by one', points: keep.points },
    { name: 'model loaded for each chunk of 100', points: reload.points },
  ];
  const title = `${JOBS} Slurm jobs, one killed each minute`;
  const svg = chartsSvg([{ title, x: "seconds of the paper's clock", y: 'inferences done', series }]);
  writeFileSync(join(ROOT, 'docs/pictures/batch-slurm.svg'), svg);
  return gain >= 0.37 ? 0 : 1;
}
