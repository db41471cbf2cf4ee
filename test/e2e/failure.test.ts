/** A fault affects only the part that fails: engines that die, agents that are killed, gateways that return. */
import { readFile } from 'node:fs/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { engineCommand, startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { load } from '../support/load.ts';
import { promise } from '../support/patience.ts';
import { commandOf, descendants } from '../support/process-table.ts';
import { atEnd, endAll, eventually, freePort, type Managed } from '../support/processes.ts';
import { chatBody, envelopeOf, MODEL, openTestCluster } from '../support/test-cluster.ts';

afterEach(endAll);

/** Finds the engine process of an agent by its command line. */
function engineOf(agent: Managed): number {
  const found = descendants(agent.pid).find((pid) => commandOf(pid).includes('support/engine.ts'));
  if (found === undefined) throw agent.failure('runs no engine');
  return found;
}

async function withChild(
  more: string[] = [],
): Promise<{ gateway: Gateway; agent: Managed; ask: () => Promise<Response> }> {
  const gateway = await Gateway.start({ queue: false });
  const [key, token, port] = await Promise.all([gateway.createKey(), gateway.createJoinToken(), freePort()]);
  const agent = await startAgent({
    gateways: [gateway.url],
    token,
    command: engineCommand(port, '--model', MODEL, ...more),
  });
  await gateway.serving(1);
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const ask = () =>
    fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(chatBody()) });
  return { gateway, agent, ask };
}

describe('an engine that the agent runs', () => {
  it('is out of routing at once when it dies, and the agent ends with 70', async () => {
    const { gateway, agent, ask } = await withChild();
    expect((await ask()).status).toBe(200);
    process.kill(engineOf(agent), 'SIGKILL');
    await eventually('the node is out', 2_000, async () => {
      const nodes = await gateway.nodes();
      return nodes.every((node) => node.state !== 'SERVING' || node.suspected) ? true : undefined;
    });
    const response = await eventually('503', 2_000, async () => {
      const answer = await ask();
      return answer.status === 503 ? answer : undefined;
    });
    expect((await envelopeOf(response)).code).toBe('no_capacity');
    expect(await agent.end(10_000)).toMatchObject({ code: 70 });
  });

  it('that ends with a code of its own makes the agent end with 70 and say which', async () => {
    const { agent } = await withChild();
    process.kill(engineOf(agent), 'SIGUSR2');
    expect(await agent.end(10_000)).toMatchObject({ code: 70 });
    expect(agent.output).toContain('the engine ended with code 3');
  });

  it('gets its arguments as they were given and nothing of the agent’s secrets', async () => {
    const odd = ['--label', 'two words', '--empty', '', '--quote=\'"$HOME`', 'ä'];
    const { agent } = await withChild(odd);
    const pid = engineOf(agent);
    const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').slice(0, -1);
    expect(argv.slice(-odd.length)).toEqual(odd);
    const environment = await readFile(`/proc/${pid}/environ`, 'utf8');
    expect(environment).not.toMatch(/OTELA_/);
    expect(environment).not.toContain('otj-');
    for (const of of [agent.pid, pid]) expect(commandOf(of)).not.toContain('otj-');
  });

  it('is ended with the agent on SIGTERM, after what it was doing was done', async () => {
    const gateway = await Gateway.start();
    const [key, token, port] = await Promise.all([gateway.createKey(), gateway.createJoinToken(), freePort()]);
    const agent = await startAgent({ gateways: [gateway.url], token, command: engineCommand(port, '--model', MODEL) });
    await gateway.serving(1);
    const pid = engineOf(agent);
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const body = JSON.stringify(chatBody({ tokens: 40, tokensPerSecond: 20 }, { stream: true }));
    const response = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
    agent.signal('SIGTERM');
    const text = await response.text();
    expect(text).toContain('[DONE]');
    expect(await agent.end(10_000)).toMatchObject({ code: 143 });
    expect(commandOf(pid)).toBe('');
    expect(await gateway.serving(0)).toEqual([]);
  });
});

it('an agent that is killed under load costs no client an error: the other node takes over', async () => {
  const cluster = await openTestCluster({ nodes: 2 });
  const traffic = load(cluster, 8);
  await eventually('both engines work', 10_000, () =>
    cluster.engines.every((engine) => engine.requests.length > 10) ? true : undefined,
  );
  cluster.agents[0]?.signal('SIGKILL');
  const before = traffic.served;
  await eventually('the other serves on', 20_000, () => (traffic.served > before + 200 ? true : undefined));
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  await cluster.gateway.serving(1);
});

it('an agent that hangs (stopped, its socket open) costs no client an error', async () => {
  const cluster = await openTestCluster({ nodes: 2 });
  cluster.agents[0]?.signal('SIGSTOP');
  atEnd(() => cluster.agents[0]?.signal('SIGCONT'));
  const traffic = load(cluster, 4);
  await eventually('the other serves', 30_000, () => (traffic.served > 100 ? true : undefined));
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  expect(cluster.engines[0]?.requests).toHaveLength(0);
  // A suspicion is not final: an agent that continues gets requests again, although its socket never closed.
  cluster.agents[0]?.signal('SIGCONT');
  await cluster.gateway.serving(2, 20_000);
});

it('an agent that hung when the gateway was killed, and goes on, is served again', async () => {
  const cluster = await openTestCluster({ nodes: 2 });
  cluster.agents[0]?.signal('SIGSTOP');
  atEnd(() => cluster.agents[0]?.signal('SIGCONT'));
  const traffic = load(cluster, 2);
  await cluster.gateway.serving(1, 30_000);
  await traffic.stop();
  await cluster.gateway.kill9();
  await cluster.gateway.restart();
  cluster.agents[0]?.signal('SIGCONT');
  await cluster.gateway.serving(2, 20_000);
});

describe('a gateway that is killed', () => {
  it('is back with its keys and all its agents within 5 s, and the agents kept their engines', async () => {
    const cluster = await openTestCluster({ nodes: 2 });
    const sessions = (await cluster.gateway.nodes()).map((node) => node.session).sort();
    await cluster.gateway.kill9();
    await cluster.gateway.restart();
    const readyAt = Date.now();
    await cluster.gateway.serving(2, 5_000);
    expect(Date.now() - readyAt).toBeLessThanOrEqual(promise(5_000));
    const response = await cluster.ask('/v1/chat/completions', chatBody());
    expect(response.status, await response.text()).toBe(200);
    expect((await cluster.gateway.nodes()).map((node) => node.session).sort()).toEqual(sessions);
    for (const agent of cluster.agents) expect(agent.running).toBe(true);
  });

  it('by its launcher alone (kill -9 of the parent) starts again on the same port and data', async () => {
    const cluster = await openTestCluster();
    cluster.gateway.process.signal('SIGKILL');
    await cluster.gateway.process.end(5_000);
    await cluster.gateway.restart();
    await cluster.gateway.serving(1, 10_000);
    expect((await cluster.ask('/v1/chat/completions', chatBody())).status).toBe(200);
  });
});

it('models that come and go at the engine come and go at the gateway', async () => {
  const cluster = await openTestCluster();
  cluster.engine.setModels([MODEL, 'late/model']);
  await cluster.gateway.serving(1, 20_000, 'late/model');
  const answer = await cluster.ask('/v1/chat/completions', { model: 'late/model', messages: [] });
  expect(answer.status, await answer.text()).toBe(200);
  cluster.engine.setModels(['late/model']);
  await cluster.gateway.serving(0, 20_000, MODEL);
});

it('an engine under a path prefix is served', async () => {
  const engine = await startEngine({ models: ['pre/fixed'], pathPrefix: '/llm' });
  atEnd(() => engine.close());
  const cluster = await openTestCluster();
  await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: engine.url });
  await cluster.gateway.serving(1, 15_000, 'pre/fixed');
  const answer = await cluster.ask('/v1/chat/completions', { model: 'pre/fixed', messages: [] });
  expect(answer.status, await answer.text()).toBe(200);
});
