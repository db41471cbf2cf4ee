/** Agents as processes, with the gateway that admitted them stopped: they find, serve and outlive each other. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { networkRowSchema, statusSchema } from '../../agent/host/control-protocol.ts';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually, type Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';
import { AGENT_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

const statusesSchema = z.array(statusSchema.extend({ network: z.array(networkRowSchema) }));
type Status = z.infer<typeof statusesSchema>[number];

interface Agent {
  process: Managed;
  /** Output of `otela-agent status --json` of this agent. */
  status(): Status;
}

async function agent(gateway: Gateway, token: string, args: string[], engineUrl?: string): Promise<Agent> {
  const state = await temporaryDirectory('otela-mesh');
  const env = { XDG_RUNTIME_DIR: state };
  const process = await startAgent({
    gateways: [gateway.url],
    token,
    args: ['--mesh', '127.0.0.1', ...args],
    env,
    ...(engineUrl === undefined ? {} : { engineUrl }),
  });
  return {
    process,
    status: () => {
      const { stdout } = spawnSync(NODE, [AGENT_MAIN, 'status', '--json'], { env, encoding: 'utf8' });
      const [status] = statusesSchema.parse(JSON.parse(stdout));
      if (status === undefined) throw process.failure('has no status');
      return status;
    },
  };
}

async function engine(): Promise<Engine> {
  const started = await startEngine({ models: [MODEL] });
  atEnd(() => started.close());
  return started;
}

/** Sends a request to an agent's ingress, with the key that the agent wrote. */
async function ask({ ingress }: Status, body: unknown): Promise<Response> {
  if (ingress === undefined) throw new Error('no ingress');
  // Reading a status blocks this process. The ends of idle connections that came meanwhile are read first.
  await setImmediate();
  return fetch(`${ingress.url}/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${readFileSync(ingress.key_file, 'utf8').trim()}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
}

const serving = (status: Status, count: number) =>
  status.network.filter(({ state, liveness }) => state === 'SERVING' && liveness === 'alive').length === count;

it('an agent serves a request that came through another agent’s ingress with every gateway stopped', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const [one, two] = [await engine(), await engine()];
  const first = await agent(gateway, token, [], one.url);
  const known = await eventually('the first is in', 20_000, () => first.status().mesh?.addresses[0]);
  const second = await agent(gateway, token, ['--peer', known], two.url);
  const asking = await agent(gateway, token, ['--peer', known, '--ingress', '127.0.0.1:0']);
  await eventually('all know all', 20_000, () =>
    [first, second, asking].every((one) => serving(one.status(), 2)) ? true : undefined,
  );

  await gateway.stop();
  const answer = await ask(asking.status(), chatBody({ tokens: 3 }));
  expect(answer.status, await answer.text()).toBe(200);
  expect([first.status().session, second.status().session]).toContain(answer.headers.get('x-otela-node'));

  // The usage is reported to the gateway after the gateway returned.
  await eventually('the usage waits', 10_000, () => asking.status().ingress?.usage_waiting === 1 || undefined);
  await gateway.restart();
  await eventually('the usage is stored', 20_000, () => asking.status().ingress?.usage_waiting === 0 || undefined);
  await gateway.stop();

  // The first agent leaves. The others learn of it, and requests continue.
  first.process.signal('SIGTERM');
  expect(await first.process.end(15_000)).toMatchObject({ code: 143 });
  await eventually('the departure is heard', 10_000, () => (serving(asking.status(), 1) ? true : undefined));
  const again = await ask(asking.status(), chatBody({ tokens: 3 }));
  expect(again.headers.get('x-otela-node')).toBe(second.status().session);

  // The second agent is killed, so no record says LEFT. A request that arrives now waits for a node.
  second.process.signal('SIGKILL');
  const waiting = ask(asking.status(), chatBody());
  await gateway.restart();
  const third = await agent(gateway, token, ['--peer', known], one.url);
  const answered = await waiting;
  expect(answered.status, await answered.text()).toBe(200);
  expect(answered.headers.get('x-otela-node')).toBe(third.status().session);
});
