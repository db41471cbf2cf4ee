/** Four idle agents, a plan, deployments, requests through the gateway; one agent is killed and the plan closes the gap. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { applyCommand } from '../../scheduler/cli/apply.ts';
import { readState } from '../../scheduler/controller/state.ts';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway, type RegisteredNode } from '../support/gateway.ts';
import { chatBody } from '../support/house.ts';
import { descendants, endAll, eventually, type Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const MODELS = ['Qwen/Qwen3-8B', 'meta-llama/Llama-2-13b-hf', 'meta-llama/Llama-3.1-8B-Instruct'];
const A100 = '0, GPU-0, NVIDIA A100-SXM4-80GB, 81920';

const TEMPLATE = {
  argv: [NODE, ENGINE_MAIN, '--port', '{{port}}', '--model', '{{model}}', '--rate', '1000'],
  parameters: { model: { type: 'string', allow: MODELS } },
};

it('plans, deploys, serves, survives the death of a node by planning again, and stops', async () => {
  const gateway = await Gateway.start();
  const [token, key] = [await gateway.createJoinToken(), await gateway.createKey()];
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
  const agents: Managed[] = await Promise.all(
    [1, 2, 3, 4].map(() => startAgent({ gateways: [gateway.url], token, args, env })),
  );
  const live = async () =>
    (await gateway.nodes()).filter(({ state, suspected }) => (state === 'JOIN' || state === 'SERVING') && !suspected);
  await eventually('four idle agents', 20_000, async () => {
    const idle = (await live()).filter(({ labels }) => labels?.['otela.accepts'] === 'vllm');
    return idle.length === 4 ? idle : undefined;
  });

  const workload = MODELS.map((model, i) => ({ model, rate: i === 0 ? 40 : 1, input: 300, output: 200 }));
  const state = join(directory, 'state.json');
  const argv = ['--gateway', gateway.url, '--key-file', await file('key', gateway.adminKey), '--state', state];
  argv.push('--agents', '--workload', await file('workload.json', { models: workload }), '--objective', 'throughput');
  const apply = async (...more: string[]) => {
    const lines: string[] = [];
    const io = { out: (text: string) => void lines.push(text), log: (text: string) => void lines.push(text) };
    await applyCommand([...argv, ...more], io);
    return lines.join('\n');
  };
  const served = (count: number, models: number) =>
    eventually(`${count} nodes serve ${models} models`, 30_000, async () => {
      const nodes = (await live()).filter((node) => node.state === 'SERVING' && node.models.length > 0);
      const names = new Set(nodes.flatMap((node) => node.models.map(({ id }) => id)));
      return nodes.length === count && names.size === models ? nodes : undefined;
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

  const dry = await apply();
  expect(dry).toMatch(/would start .* on agents: A100-80-SXM x1 vllm\//);
  expect((await live()).every(({ labels }) => labels?.['otela.deployment'] === undefined)).toBe(true);

  const first = await apply('--yes');
  expect(first.match(/done: start/g)?.length).toBe(4);
  const nodes = await served(4, 3);
  for (const model of MODELS) expect(await ask(model)).toBe(200);
  // What each node gets is told to the gateway, which then routes by it.
  const again = await apply('--yes', '--weights');
  expect(again).toMatch(/nothing to change/);
  expect(again.match(/done: weights of/g)?.length).toBe(3);
  const busiest = nodes.filter((node) => node.models[0]?.id === MODELS[0]).map(({ session }) => session);
  expect(await gateway.admin('GET', `routing/${MODELS[0]}`)).toMatchObject({
    weights: [...busiest.sort().map((session) => ({ session, weight: 0.5 })), { weight: 0.5 }],
  });
  expect(await ask(MODELS[0] ?? '')).toBe(200);

  // The only node of a model dies: one of the busiest model's makes room for it.
  const lonely = nodes.find((node) => node.models[0]?.id === MODELS[1]);
  const victim = agents.find(({ output }) => output.includes(lonely?.session ?? '?'));
  // As when its machine dies: also the process that would tell the gateway of the agent's end.
  victim?.signal('SIGSTOP');
  for (const pid of descendants(victim?.pid ?? -1)) process.kill(pid, 'SIGKILL');
  victim?.signal('SIGKILL');
  const seen = (what: string, is: (node: RegisteredNode) => boolean) =>
    eventually(what, 10_000, async () =>
      (await gateway.nodes()).find((node) => node.session === lonely?.session && is(node)),
    );
  await seen('the gateway misses it', ({ suspected }) => suspected);
  // Who is only silent has not gone. The gateway gives a node up after a minute or more; an operator need not wait.
  expect(await apply('--yes', '--reclaim')).toMatch(/nothing to change/);
  await gateway.admin('DELETE', `nodes/${lonely?.session}`);
  await seen('it is gone', ({ state: now }) => now === 'LEFT');
  const second = await apply('--yes', '--reclaim');
  expect(second).toMatch(/deployment plan-\w+ of meta-llama\/Llama-2-13b-hf .* ended unasked/);
  expect(second).toMatch(/done: stop deployment plan-\w+, Qwen\/Qwen3-8B/);
  expect(second).toMatch(/done: start meta-llama\/Llama-2-13b-hf/);
  await served(3, 3);
  for (const model of MODELS) expect(await ask(model)).toBe(200);

  // All of its own, and nothing else, ends on request; the agents wait again.
  expect((await apply('--yes', '--stop')).match(/done: stop deployment/g)?.length).toBe(3);
  await eventually('three idle agents', 20_000, async () => {
    const idle = (await live()).filter(({ labels }) => labels?.['otela.accepts'] === 'vllm');
    return idle.length === 3 ? idle : undefined;
  });
  expect(readState(state).jobs).toEqual([]);
});
