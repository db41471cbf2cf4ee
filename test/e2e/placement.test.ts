/**
 * Idle agents, a plan of `otela-plan watch`, and an autoscaler that follows it: deployments, requests through the
 * gateway, and a node that changes its model.
 */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { watchCommand } from '../../scheduler/cli/watch-command.ts';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { FACTORY_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

const MODELS = ['Qwen/Qwen3-8B', 'meta-llama/Llama-2-13b-hf', 'meta-llama/Llama-3.1-8B-Instruct'];
const A100 = '0, GPU-0, NVIDIA A100-SXM4-80GB, 81920';

const TEMPLATE = {
  argv: [NODE, ENGINE_MAIN, '--port', '{{port}}', '--model', '{{model}}', '--rate', '1000'],
  parameters: { model: { type: 'string', allow: MODELS } },
};
const recipe = (model: string, n: number) => `
[recipes.r${n}]
weights = "${model}"
[[recipes.r${n}.engines]]
gpu = ["A100"]
gpus = 1
template = "vllm"
[models."${model}"]
recipe = "r${n}"
max = 4
idle = "2s"
`;

it('the planner plans, the factory gives the orders, and moves a node when the plan changes', async () => {
  const gateway = await Gateway.start();
  const [token, key] = [await gateway.createJoinToken(), await gateway.createKey()];
  const made = z
    .object({ token: z.string() })
    .parse(await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name: 'f' }));
  const directory = await temporaryDirectory('otela-placement');
  const file = async (name: string, content: unknown, mode = 0o600) => {
    const path = join(directory, name);
    await mkdir(join(path, '..'), { recursive: true, mode: 0o755 });
    await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content), { mode });
    return path;
  };
  await file('templates/vllm.json', TEMPLATE, 0o644);
  await chmod(await file('bin/nvidia-smi', `#!/bin/sh\necho '${A100}'\n`), 0o755);
  const env = { PATH: `${join(directory, 'bin')}:${process.env.PATH}` };
  const args = ['--accept-deployments', join(directory, 'templates')];
  await Promise.all([1, 2, 3, 4].map(() => startAgent({ gateways: [gateway.url], token, args, env })));
  const live = async () =>
    (await gateway.nodes()).filter(({ state, suspected }) => (state === 'JOIN' || state === 'SERVING') && !suspected);
  await eventually('four idle agents', 30_000, async () => {
    const idle = (await live()).filter(({ labels }) => labels?.['otela.accepts'] === 'vllm');
    return idle.length === 4 ? idle : undefined;
  });

  const workload = MODELS.map((model, i) => ({ model, rate: i === 0 ? 40 : 1, input: 300, output: 200 }));
  const operatorKey = await file('key', gateway.adminKey);
  const plan = join(directory, 'plan.json');
  const argv = ['--gateway', gateway.url, '--key-file', operatorKey, '--plan', plan, '--objective', 'throughput'];
  argv.push('--workload', await file('workload.json', { models: workload }));
  const lines: string[] = [];
  const io = { out: (text: string) => void lines.push(text), log: (text: string) => void lines.push(text) };
  const over = new AbortController();
  await watchCommand(argv, io, { signal: over.signal, wait: async () => over.abort() });
  expect(lines.join('\n')).toMatch(/run 2 replicas of Qwen\/Qwen3-8B on agents instead of 0/);
  expect((await live()).every(({ labels }) => labels?.['otela.deployment'] === undefined)).toBe(true);

  const config = `factory = "pool"
gateway = "${gateway.url}"
token_file = "${await file('factory-token', made.token)}"
state = "${join(directory, 'state')}"
[guest]
every = "1s"
short_lived = "1s"
[plan]
file = "${plan}"
[clusters.idle]
launcher = "agents"
key_file = "${operatorKey}"
max_pending = 4
[[clusters.idle.pools]]
name = "a100"
gpu = "A100"
gpus_per_node = 1
${MODELS.map(recipe).join('')}`;
  const factory = new Managed([NODE, FACTORY_MAIN, 'run', '--config', await file('factory.toml', config)], {
    label: 'factory',
  });
  const served = (counts: readonly number[]) =>
    eventually(`${counts.join(', ')} replicas`, 60_000, async () => {
      const nodes = (await live()).filter((node) => node.state === 'SERVING');
      const found = MODELS.map((model) => nodes.filter((node) => node.models.some(({ id }) => id === model)).length);
      return found.join() === counts.join() ? nodes : undefined;
    });
  const ask = async (model: string) => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({}, { model })),
    });
    await response.body?.cancel();
    return response.status;
  };
  await served([2, 1, 1]);
  for (const model of MODELS) expect(await ask(model)).toBe(200);

  const next = [1, 2, 1].map((replicas, i) => ({ model: MODELS[i], replicas }));
  await writeFile(plan, JSON.stringify({ placements: next }), { mode: 0o600 });
  await served([1, 2, 1]);
  for (const model of MODELS) expect(await ask(model)).toBe(200);
  // When the autoscaler ends, all deployments keep running.
  factory.signal('SIGTERM');
  await factory.exited;
  await served([1, 2, 1]);
});
