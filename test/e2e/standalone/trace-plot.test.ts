/**
 * `trace plot` from files: every figure as an image that an XML parser accepts, and as numbers; `otela-plan simulate`
 * accepts the same trace.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { FIGURE_NAMES, numberOfFigure, PAPER_FIGURES } from '../../../gateway/cli/trace/paper-figures.ts';
import { which } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { MockFactory } from '../../support/factory.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE, PLAN_MAIN } from '../../support/where.ts';

const run = promisify(execFile);
const START = Date.parse('2026-11-20T10:00:00Z');
/** A model name that a hostile agent may choose. */
const HOSTILE = '</text><script>alert("1")</script>&\u0001';

/** An hour of requests to two models, in the format of `trace export`. */
const lines = Array.from({ length: 120 }, (_, n) => ({
  timestamp: new Date(START + n * 30_000).toISOString(),
  model: n % 3 === 0 ? HOSTILE : 'org/plain',
  status: 200,
  input_tokens: 100 + n,
  output_tokens: 20 + (n % 40),
  reasoning_tokens: n % 3 === 0 ? 9 : 0,
  first_token_ms: 200,
  total_ms: 1_500,
  attempt: 1,
}));
/** The same hour in the format of the paper's dataset. */
const published = lines.map(({ timestamp, model, input_tokens, output_tokens, total_ms }, id) => ({
  id: String(id),
  status: 'success',
  created_at: timestamp.replace('T', ' ').replace('Z', ''),
  finished_at: new Date(Date.parse(timestamp) + total_ms).toISOString().replace('T', ' ').replace('Z', ''),
  model,
  reported_token_input: input_tokens,
  reported_token_output: output_tokens,
  token_count: input_tokens,
}));
const samples = [0, 1, 2].map((hour) => ({
  timestamp: new Date(START + hour * 3_600_000).toISOString(),
  session: 's',
  gpus: 4,
  gpu: 'GH200',
  models: ['org/plain'],
  busy: hour > 0,
  kv_use: 0.5,
  power_w: 700,
  tokens_per_second: 100,
}));

/** The trace above has no prefix buckets. */
const FIGURES = FIGURE_NAMES.filter((name) => name !== 'prefix-reuse');
const DRAWN = FIGURES.filter((name) => name !== 'summary');
const figureSchema = z.object({
  name: z.string(),
  facts: z.record(z.string(), z.number()),
  charts: z.array(
    z.object({ series: z.array(z.object({ points: z.array(z.tuple([z.number(), z.number()])).min(1) })).min(1) }),
  ),
});

let directory = '';
const at = (...path: string[]) => join(directory, ...path);
const ndjson = (file: string, rows: readonly object[]) =>
  writeFile(at(file), `${rows.map((row) => JSON.stringify(row)).join('\n')}\n`);

beforeAll(async () => {
  directory = await temporaryDirectory();
  await Promise.all([
    ndjson('own.ndjson', lines),
    ndjson('published.jsonl', published),
    ndjson('nodes.ndjson', samples),
  ]);
});
afterAll(endAll);

const plot = (...args: string[]) => run(NODE, [GATEWAY_MAIN, 'trace', 'plot', ...args]);
const figure = (out: string, name: string) =>
  figureSchema.parse(JSON.parse(readFileSync(at(out, `${name}.json`), 'utf8')));

it('each figure is a picture, numbers and a text, of our export and of the published trace alike', async () => {
  const { stdout } = await plot(at('own.ndjson'), '--nodes', at('nodes.ndjson'), '--out', at('own'));
  for (const name of FIGURES) {
    expect(figure('own', name).name).toBe(name);
    expect(stdout).toContain(`${numberOfFigure(name)}: ${PAPER_FIGURES[name].title}`);
  }
  expect(stdout).toMatch(/Figure 14 \(OpenFabric: Figure 12\).*\n {2}no data/);
  expect(readdirSync(at('own')).sort()).toEqual(
    [...FIGURES.map((name) => `${name}.json`), ...DRAWN.map((name) => `${name}.svg`)].sort(),
  );
  expect(figure('own', 'lengths').facts).toMatchObject({ 'org/plain, output: p95': expect.any(Number) });
  expect(figure('own', 'energy').facts).toMatchObject({ mean_w: 700, kwh: 1.4 });

  await plot(at('published.jsonl'), '--reasoning', HOSTILE, '--out', at('published'));
  for (const name of ['tokens-by-model', 'lengths', 'latency', 'output-share', 'burstiness'])
    expect(figure('published', name).facts).toEqual(figure('own', name).facts);
});

it('a parser of XML takes every picture, whatever models are called', ({ skip }) => {
  if (which('python3') === undefined) return skip('not installed: python3');
  const script =
    'import sys, xml.dom.minidom as m\nfor f in sys.argv[1:]: assert not m.parse(f).getElementsByTagName("script"), f';
  for (const out of ['own', 'published']) {
    const files = readdirSync(at(out)).filter((name) => name.endsWith('.svg'));
    expect(files.length).toBeGreaterThan(5);
    const { stderr, status } = spawnSync('python3', ['-c', script, ...files.map((name) => at(out, name))], {
      encoding: 'utf8',
    });
    expect([stderr, status]).toEqual(['', 0]);
  }
});

it.each(['own.ndjson', 'published.jsonl'])('otela-plan simulate takes %s', async (file) => {
  const asked = [
    '--trace',
    at(file),
    '--trace-model',
    'org/plain',
    '--model',
    'Qwen/Qwen3-8B',
    '--gpu',
    'H100',
    '--json',
  ];
  const { stdout } = await run(NODE, [PLAN_MAIN, 'simulate', ...asked]);
  expect(JSON.parse(stdout)).toMatchObject({ requests: 80, refused: 0 });
});

it('trace sample prints the nodes of a live gateway and the idle GPUs of its clusters, which plot reads', async () => {
  const gateway = await Gateway.start();
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const bin = at('bin');
  await mkdir(bin);
  await writeFile(join(bin, 'nvidia-smi'), "#!/bin/sh\necho '0, GPU-0, NVIDIA A100-SXM4-80GB, 81920'\n");
  await chmod(join(bin, 'nvidia-smi'), 0o755);
  const token = await gateway.createJoinToken('lab', 'alps');
  const env = { PATH: `${bin}:${process.env.PATH}` };
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, env });
  const [node] = await gateway.serving(1);
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name: 'f' });
  const factory = z.object({ token: z.string() }).parse(made);
  const cluster = { launcher: 'slurm', reachable: true, pending: 0, running: 0 };
  await new MockFactory({ url: gateway.url, token: factory.token, models: [] }).tell({
    clusters: [
      { ...cluster, id: 'alps', idle_gpus: 6, idle_gpus_by_class: { A100: 4, GH200: 2 } },
      { ...cluster, id: 'old', idle_gpus: 3 },
      { ...cluster, id: 'silent' },
    ],
  });
  // A stream that lasts until the engine breaks it, however long the command takes.
  const asked = fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await gateway.createKey()}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody({ tokens: 9_000, tokensPerSecond: 10 }, { stream: true })),
  });
  const admin = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  const lineSchema = z.looseObject({ timestamp: z.iso.datetime(), busy: z.boolean().optional() });
  const sample = async () => {
    const { stdout } = await run(NODE, [GATEWAY_MAIN, 'trace', 'sample', ...admin]);
    const read = stdout.trim().split('\n');
    return { stdout, read: read.map((line) => lineSchema.parse(JSON.parse(line))) };
  };
  const { stdout, read } = await eventually('a busy node', 20_000, async () => {
    const now = await sample();
    return now.read[0]?.busy === true ? now : undefined;
  });
  engine.hangUp();
  await (await asked).text().catch(() => '');
  expect(read).toEqual([
    expect.objectContaining({ session: node?.session, cluster: 'alps', gpus: 1, gpu: 'A100', models: [MODEL] }),
    expect.objectContaining({ cluster: 'alps', gpu: 'A100', idle_gpus: 4 }),
    expect.objectContaining({ cluster: 'alps', gpu: 'GH200', idle_gpus: 2 }),
    expect.objectContaining({ cluster: 'old', gpu: null, idle_gpus: 3 }),
  ]);
  await writeFile(at('live.ndjson'), stdout);
  await plot(at('own.ndjson'), '--nodes', at('live.ndjson'), '--out', at('live'));
  expect(figure('live', 'idle-gpus').facts).toEqual({
    idle_share: 0,
    'idle A100, mean': 0,
    'free in clusters, A100, mean': 4,
    'free in clusters, GH200, mean': 2,
    'free in clusters, GPU, mean': 3,
  });
});
