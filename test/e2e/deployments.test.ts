/** Deployments over the network: a gateway orders, and an idle agent does only what its operator allows. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway, type RegisteredNode } from '../support/gateway.ts';
import { endAll, eventually, type Managed } from '../support/processes.ts';
import { MOCK_TEMPLATE, writeTemplates } from '../support/templates.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

afterAll(endAll);

const answerSchema = z.object({
  session: z.string(),
  deployment: z
    .object({ id: z.string(), template: z.string(), state: z.string(), reason: z.string().optional() })
    .nullable(),
  offers: z.array(z.object({ template: z.string(), parameters: z.record(z.string(), z.unknown()) })).optional(),
});

const BROKEN = { argv: [NODE, '-e', 'console.error("no weights on this disk"); process.exit(3)', '{{port}}'] };

describe('a deployment', () => {
  let gateway: Gateway;
  let agent: Managed;
  let token = '';

  beforeAll(async () => {
    gateway = await Gateway.start();
    token = await gateway.createJoinToken();
    const directory = await writeTemplates({ 'stand-in': MOCK_TEMPLATE, broken: BROKEN });
    agent = await startAgent({ gateways: [gateway.url], token, args: ['--accept-deployments', directory] });
  });

  const path = (session: string) => `nodes/${session}/deployment`;
  const request = (method: string, session: string, body?: unknown) =>
    fetch(`${gateway.url}/admin/${path(session)}`, {
      method,
      headers: { authorization: `Bearer ${gateway.adminKey}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const put = async (session: string, body: unknown) => {
    const response = await request('PUT', session, body);
    if (response.status !== 202) throw new Error(`${response.status} ${await response.text()}`);
    return answerSchema.parse(await response.json());
  };
  const live = async () => (await gateway.nodes()).filter(({ state }) => state !== 'LEFT' && state !== 'DOWN');
  const labelsOf = (node: RegisteredNode | undefined) => node?.labels ?? {};
  /** Returns the only idle node that accepts deployments. */
  const idle = (not = '') =>
    eventually('an idle node that accepts', 20_000, async () =>
      (await live()).find((node) => node.session !== not && labelsOf(node)['otela.accepts'] !== undefined),
    );

  it('begins as a new session, serves, and ends with it: the agent is idle again', async () => {
    const before = await idle();
    expect(labelsOf(before)['otela.accepts']).toBe('broken,stand-in');
    const offered = answerSchema.parse(await gateway.admin('GET', path(before.session)));
    expect(offered.deployment).toBeNull();
    expect(offered.offers?.map(({ template }) => template)).toEqual(['broken', 'stand-in']);
    expect(JSON.stringify(offered)).not.toContain(ENGINE_MAIN); // the command is private to the agent's operator

    const { deployment } = await put(before.session, {
      id: 'dep-1',
      template: 'stand-in',
      parameters: { model: 'stand-in/model-7' },
    });
    expect(deployment).toMatchObject({ id: 'dep-1', template: 'stand-in', state: 'starting' });
    const [serving] = await gateway.serving(1, 20_000, 'stand-in/model-7');
    expect(serving?.session).not.toBe(before.session);
    expect(labelsOf(serving)).toEqual({ 'otela.deployment': 'dep-1' });
    const key = await gateway.createKey();
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({}, { model: 'stand-in/model-7' })),
    });
    expect(answer.status).toBe(200);
    await answer.body?.cancel();
    const now = answerSchema.parse(await gateway.admin('GET', path(serving?.session ?? '')));
    expect(now.deployment).toMatchObject({ id: 'dep-1', state: 'running' });
    expect(now.offers).toHaveLength(2);

    const second = await request('PUT', serving?.session ?? '', {
      template: 'stand-in',
      parameters: { model: 'stand-in/b' },
    });
    expect(second.status).toBe(409);
    expect((await envelopeOf(second)).message).toMatch(/busy.*dep-1/);

    expect((await request('DELETE', serving?.session ?? '')).status).toBe(202);
    const after = await idle();
    expect(after.session).not.toBe(serving?.session);
    expect(labelsOf(after)).toEqual({ 'otela.accepts': 'broken,stand-in' });
    expect((await gateway.nodes()).find(({ session }) => session === serving?.session)?.state).toBe('LEFT');
    expect((await request('DELETE', after.session)).status).toBe(404);
    const again = await request('PUT', before.session, { template: 'stand-in', parameters: { model: 'stand-in/b' } });
    expect(again.status).toBe(410);
    expect(agent.running).toBe(true);
    const audit = JSON.stringify(await gateway.admin('GET', 'audit'));
    expect(audit).toMatch(/deployment\.start/);
    expect(audit).toMatch(/deployment\.stop/);
  });

  it('is refused with a reason where the operator does not allow it, and the session stays', async () => {
    const { session } = await idle();
    const refusals: [unknown, number, RegExp][] = [
      [{ template: 'rm' }, 422, /unknown_template.*broken, stand-in/],
      [{ template: 'stand-in' }, 422, /bad_parameters.*model/],
      [{ template: 'stand-in', parameters: { model: 'evil/model' } }, 422, /bad_parameters.*stand-in\/\*/],
      [{ template: 'stand-in', parameters: { model: 'stand-in/$(reboot)' } }, 422, /bad_parameters.*model/],
      [{ template: 'stand-in', parameters: { model: 'stand-in/../../etc' } }, 422, /bad_parameters.*model/],
      [{ template: 'stand-in', parameters: { model: 'stand-in/a', rate: 0 } }, 422, /bad_parameters.*rate/],
      [{ template: 'stand-in', parameters: { model: 'stand-in/a', rate: '5' } }, 422, /bad_parameters.*rate/],
      [{ template: 'stand-in', parameters: { model: 'stand-in/a', argv: 'sh' } }, 422, /bad_parameters.*argv/],
      [{ template: 'stand-in', argv: ['sh'] }, 400, /argv/],
      [{ template: '../stand-in', parameters: { model: 'stand-in/a' } }, 400, /template/],
    ];
    for (const [body, status, message] of refusals) {
      const response = await request('PUT', session, body);
      expect([response.status, (await envelopeOf(response)).message]).toEqual([status, expect.stringMatching(message)]);
    }
    expect((await live()).map((node) => node.session)).toEqual([session]);
    // An agent that was not started for deployments gets no order.
    await startAgent({ gateways: [gateway.url], token });
    const deaf = await eventually('another idle node', 15_000, async () =>
      (await live()).find((node) => node.session !== session),
    );
    const response = await request('PUT', deaf.session, { template: 'stand-in' });
    expect([response.status, (await envelopeOf(response)).code]).toEqual([409, 'deployment_refused']);
    // Only operators may order.
    const key = await gateway.createKey();
    const stranger = await fetch(`${gateway.url}/admin/${path(session)}`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}` },
      body: '{}',
    });
    expect(stranger.status).toBe(403);
  });

  it('whose engine fails ends its session, with its last words, and the agent is idle again and says why', async () => {
    const before = await idle();
    await put(before.session, { id: 'dep-bad', template: 'broken' });
    const after = await eventually('the failure is told', 20_000, async () =>
      (await live()).find(
        (node) =>
          labelsOf(node)['otela.deployment-failed'] !== undefined && labelsOf(node)['otela.accepts'] !== undefined,
      ),
    );
    expect(labelsOf(after)['otela.deployment-failed']).toBe('dep-bad the engine ended with code 3');
    const { deployment } = answerSchema.parse(await gateway.admin('GET', path(after.session)));
    expect(deployment).toMatchObject({ id: 'dep-bad', state: 'failed', reason: 'the engine ended with code 3' });
    expect(agent.running).toBe(true);
    // A failed deployment does not block the next one.
    await put(after.session, { template: 'stand-in', parameters: { model: 'stand-in/model-1' } });
    const [serving] = await gateway.serving(1, 20_000, 'stand-in/model-1');
    expect(labelsOf(serving)['otela.deployment-failed']).toBeUndefined();
  });
});

describe('otela-gateway models', () => {
  let gateway: Gateway;
  let token = '';

  const models = async (...args: string[]) => {
    const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
    return (await promisify(execFile)(NODE, [GATEWAY_MAIN, 'models', ...args, ...door])).stdout;
  };
  const startIdle = async () => {
    const directory = await writeTemplates({ 'stand-in': MOCK_TEMPLATE });
    await startAgent({ gateways: [gateway.url], token, args: ['--accept-deployments', directory] });
  };
  const idle = (count: number) =>
    eventually(`${count} idle nodes`, 20_000, async () => {
      const nodes = (await gateway.nodes()).filter(
        ({ state, labels }) => state === 'JOIN' && labels?.['otela.accepts'] !== undefined,
      );
      return nodes.length === count ? nodes : undefined;
    });

  beforeAll(async () => {
    gateway = await Gateway.start();
    token = await gateway.createJoinToken();
    await Promise.all([startIdle(), startIdle()]);
  });

  it('loads a model, moves it without a moment in which no node serves it, and unloads it', async () => {
    await idle(2);
    const model = 'stand-in/moved';
    expect(await models('load', model, '--set', 'rate=500')).toMatch(/loads stand-in\/moved .*template stand-in\)/);
    const [first] = await gateway.serving(1, 20_000, model);
    expect(await models('list')).toMatch(new RegExp(`${model} +ready +- +${first?.session}`));

    const moved = await models('move', model);
    expect(moved).toContain(`${first?.session}  unloads it when the new node serves it`);
    const least = await eventually('the first node is idle again', 20_000, async () => {
      const nodes = (await gateway.nodes()).filter((node) => node.models.some(({ id }) => id === model));
      const serving = nodes.filter(({ state }) => state === 'SERVING');
      expect(serving.length).toBeGreaterThan(0);
      return nodes.some(({ session, state }) => session === first?.session && state === 'LEFT') ? serving : undefined;
    });
    expect(least.map(({ session }) => session)).not.toContain(first?.session);

    expect(await models('unload', model, '--drain-seconds', '1')).toContain(`unloads ${model}`);
    await idle(2);
    await expect(models('unload', model)).rejects.toThrow(/No node runs stand-in\/moved/);
    await expect(models('load', 'evil/model')).rejects.toThrow(/"evil\/model" is not allowed/);
    await expect(models('list', '--to', 'x')).rejects.toThrow(/models list takes no --to/);
  });
});
