/** The controller on a real Slurm and a real gateway: plans, submits four jobs, they serve, one is killed, the gap is closed. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { applyCommand } from '../../scheduler/cli/apply.ts';
import { main } from '../../scheduler/cli/main.ts';
import { type Launcher, slurmLauncher } from '../../scheduler/controller/launcher.ts';
import { readState } from '../../scheduler/controller/state.ts';
import { chatBody, openHouse } from '../support/house.ts';
import { endAll, eventually } from '../support/processes.ts';
import { Cluster } from './cluster.ts';

const MODELS = ['Qwen/Qwen3-8B', 'meta-llama/Llama-3.1-8B-Instruct'];

const planSchema = z.object({ models: z.array(z.object({ model: z.string(), rate: z.number() })) });

afterEach(endAll);

it('plans, submits, serves through the gateway, and closes the gap when a job is killed', async () => {
  const house = await openHouse();
  await house.agents[0]?.stop();
  const cluster = await Cluster.up();
  const token = await cluster.secret('token', await house.gateway.createJoinToken('hpc', 'alps'));
  const file = async (name: string, content: unknown, mode = 0o644) => {
    const path = join(cluster.directory, name);
    await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content), { mode });
    return path;
  };

  // All machines of this Slurm are one, so each job's engine needs a port of its own.
  const line = await cluster.agentLine('exec', '{{gateway}}', token, '{{model}}');
  const port = /--engine-port (\d+)/.exec(line)?.[1] ?? '';
  const template = `#!/bin/bash\nexport PORT=$((20000 + SLURM_JOB_ID % 20000))\n${line.replaceAll(port, '$PORT')}\n`;
  // The tests' user submits, root asks.
  const slurm = slurmLauncher(async (name, args) =>
    cluster.command(name, ...args.map((word) => (word === '--me' ? '--user=nobody' : word))),
  );
  const launcher: Launcher = {
    ...slurm,
    start: async (script) => (await cluster.submit({ sbatch: ['--gres=gpu:a100:1', '--time=10', '-w n1'], script })).id,
  };
  const workload = MODELS.map((model) => ({ model, rate: 100, input: 300, output: 100, tp: [1] }));
  const state = join(cluster.directory, 'state.json');
  const argv = [
    '--gateway',
    house.gateway.url,
    '--key-file',
    await file('key', house.gateway.adminKey, 0o600),
    '--state',
    state,
  ];
  argv.push(
    '--inventory',
    await file('inventory.json', { pools: [{ id: 'n1', gpu: 'A100-80-SXM', nodes: 1, gpus_per_node: 4 }] }),
  );
  argv.push(
    '--workload',
    await file('workload.json', { models: workload }),
    '--slurm',
    await file('job.sbatch', template),
    '--objective',
    'throughput',
  );
  const apply = async () => {
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: (text: string) => void lines.push(text) };
    await applyCommand([...argv, '--yes'], io, { launcher });
    return lines.join('\n');
  };
  const serving = (not?: string) =>
    eventually('four jobs serve', 90_000, async () => {
      const nodes = (await house.gateway.nodes()).filter(
        (node) => node.state === 'SERVING' && !node.suspected && node.job !== undefined && node.job.id !== not,
      );
      return nodes.length === 4 ? nodes : undefined;
    });

  const first = await apply();
  expect(first.match(/done: start/g)?.length).toBe(4);
  await serving();
  for (const model of MODELS) {
    const answer = await house.ask('/v1/chat/completions', chatBody({}, { model }));
    expect(answer.status).toBe(200);
    await answer.body?.cancel();
  }
  expect(await apply()).toMatch(/nothing to change/);

  // What was asked is what the next plan is for.
  const live = [
    'plan',
    '--live',
    '--gateway',
    house.gateway.url,
    '--key-file',
    argv[3] ?? '',
    '--window',
    '10m',
    '--json',
    '--duration',
    '0',
  ];
  const plan = await eventually('the gateway has counted the requests', 20_000, async () => {
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: () => {} };
    const code = await main(live, io);
    const parsed: unknown = code === 0 ? JSON.parse(lines.join('\n')) : undefined;
    return planSchema.safeParse(parsed).data?.models.length === MODELS.length ? planSchema.parse(parsed) : undefined;
  });
  expect(plan.models.map(({ model }) => model).sort()).toEqual(MODELS);
  expect(plan.models.every(({ rate }) => rate > 0 && rate < 1)).toBe(true);

  const killed = readState(state).jobs[0]?.id ?? '';
  cluster.command('scancel', '--signal=KILL', '--full', killed);
  await eventually('Slurm has forgotten the job', 60_000, async () =>
    (await launcher.states([killed])).get(killed) === 'gone' ? true : undefined,
  );
  const second = await apply();
  expect(second).toMatch(new RegExp(`job ${killed} .* ended unasked`));
  expect(second.match(/done: start/g)?.length).toBe(1);
  const nodes = await serving(killed);
  expect(new Set(nodes.flatMap(({ models }) => models.map(({ id }) => id)))).toEqual(new Set(MODELS));
});
