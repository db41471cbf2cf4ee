/** The page of nodes, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { promise } from '../support/patience.ts';
import { descendants } from '../support/process-table.ts';
import { atEnd, freePort, temporaryDirectory } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { ROOT } from '../support/where.ts';
import { go, openDoor } from './visitors.ts';

const SECOND = 'stand-in/model-2';
const WEIGHED = 'stand-in/model-5';
const DRAINED = 'stand-in/model-3';
const visitors = openDoor();

it('nodes: the clusters, one node on its page, a filter, and what happened', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Nodes');
  await page.getByRole('region', { name: '1 cluster with 1 node' }).waitFor();
  await page.getByLabel('Find', { exact: true }).fill('nobody');
  await page.getByText('There are no nodes').waitFor();
  await page.getByLabel('Find', { exact: true }).fill('LAB model-1');
  const [node] = await visitors.house.gateway.nodes();
  await page.getByRole('link', { name: node?.session.slice(0, 8) ?? '' }).click();
  await page
    .getByRole('main')
    .getByText(/connected$/)
    .waitFor();
  await page.getByText('sent here').waitFor();
  await page.getByRole('link', { name: 'Back to all nodes' }).click();
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const agent = await startAgent({
    gateways: [visitors.house.gateway.url],
    token: visitors.house.token,
    engineUrl: engine.url,
  });
  const history = page.getByRole('table').last().getByRole('row');
  await history.filter({ hasText: 'joined' }).nth(1).waitFor();
  agent.signal('SIGTERM');
  await history.getByText('left').waitFor();
  const told = await history.allInnerTexts();
  const life = told.filter((line) => line.includes(node?.session.slice(0, 8) ?? '–'));
  // Events from before the page was opened.
  expect(life.map((line) => line.split('\t')[1]?.trim())).toEqual(['serving', 'joined']);
  await page.getByRole('img', { name: /^Over time/ }).waitFor();
  expect(complaints).toEqual([]);
});

it('weights on a node’s disk are shown to its provider, and in no public list', async () => {
  const { gateway, token } = visitors.house;
  const engine = await startEngine({ models: [WEIGHED] });
  atEnd(() => engine.close());
  const place = await temporaryDirectory('otela-weights');
  await mkdir(join(place, 'apertus'));
  await writeFile(join(place, 'apertus', 'model.safetensors'), 'weights');
  const agent = await startAgent({
    gateways: [gateway.url],
    token,
    engineUrl: engine.url,
    args: ['--weights', `dir:${place}/apertus`, '--weights-dir', join(place, 'disk')],
  });
  const [node] = await gateway.serving(1, 60_000, WEIGHED);
  const { page, complaints } = await visitors.enter();
  await page.goto(`${gateway.url}/#/nodes/${node?.session}`);
  await page.getByText('Weights on disk').waitFor();
  await page.getByText('apertus').waitFor();
  await page.getByText('all here').waitFor();
  const listed = JSON.stringify(await gateway.admin('GET', '../v1/registry/nodes'));
  expect(listed).toContain(WEIGHED);
  expect(listed).not.toContain('apertus');
  expect(complaints).toEqual([]);
  agent.signal('SIGTERM');
  await agent.end(40_000);
});

it('a node that falls silent is shown so, with what was noticed, and a provider handles its own nodes alone', async () => {
  const { gateway, token } = visitors.house;
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const ends = Math.floor(Date.now() / 1000) + 2 * 3600 + 30;
  const env = {
    SLURM_JOB_ID: '7',
    SLURM_JOB_PARTITION: 'gpu',
    SLURMD_NODENAME: 'nid001',
    SLURM_JOB_END_TIME: String(ends),
  };
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, env });
  const [node] = await gateway.serving(1, 15_000, SECOND);
  const { page, complaints } = await visitors.enter(
    await gateway.createKey('lab', { role: 'provider', provider: 'lab' }),
  );
  await go(page, 'Nodes');
  const short = node?.session.slice(0, 8) ?? '';
  const row = page.getByRole('region', { name: 'Nodes' }).getByRole('row').filter({ hasText: short });
  await row.getByText(/^(2 h 0|1 h 59) min$/).waitFor();
  await row.getByRole('link').click();
  await page.getByRole('button', { name: 'Drain' }).waitFor();
  await page.getByText('7 in partition gpu').waitFor();
  expect(await page.getByRole('button', { name: 'End node' }).count()).toBe(0);
  await page.getByRole('link', { name: 'Back to all nodes' }).click();
  // Simulates a lost machine: the process that would report the agent's end to the gateway is killed first.
  for (const pid of descendants(agent.pid)) process.kill(pid, 'SIGKILL');
  agent.signal('SIGKILL', 'group');
  await row.getByText('unreachable').waitFor();
  const lost = page
    .getByRole('region', { name: 'Joins and losses' })
    .getByRole('row')
    .filter({ hasText: 'unreachable' });
  await lost.getByText('its tunnel closed').waitFor();
  expect(await lost.innerText()).toMatch(/nid001/);
  expect(complaints).toEqual([]);

  await gateway.admin('POST', 'providers', { id: 'eth' });
  const others = await visitors.enter(await gateway.createKey('eth', { role: 'provider', provider: 'eth' }));
  await go(others.page, 'Nodes');
  await others.page.getByText('No node has joined or left').waitFor();
  await others.page.getByRole('link', { name: short }).click();
  await others.page.locator('#main').getByText('Id', { exact: true }).waitFor();
  expect(await others.page.locator('#main').getByRole('button').count()).toBe(0);
  expect(others.complaints).toEqual([]);
});

it('a node is drained by its button, after a question, and what runs there finishes', async () => {
  const { gateway, token } = visitors.house;
  const engine = await startEngine({ models: [DRAINED] });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  const [node] = await gateway.serving(1, 15_000, DRAINED);
  const { page, complaints } = await visitors.enter();
  await go(page, 'Nodes');
  const short = node?.session.slice(0, 8) ?? '';
  await page.getByRole('link', { name: short }).click();
  const details = page.locator('#main');
  await details.getByText(/^\d+ seconds? ago$/).waitFor();
  const answer = await visitors.house.ask('/v1/chat/completions', {
    ...chatBody({ tokens: 40, tokensPerSecond: 20 }, { stream: true }),
    model: DRAINED,
  });
  await details.getByRole('button', { name: 'Drain' }).click();
  const question = page.getByRole('alertdialog', { name: 'Drain this node?' });
  await question.getByText(`no new requests for ${DRAINED}`).waitFor();
  await question.getByText('Running requests finish.').waitFor();
  await question.getByRole('button', { name: 'Cancel' }).click();
  await question.waitFor({ state: 'detached' });
  expect((await gateway.nodes()).find(({ session }) => session === node?.session)?.state, 'not before a yes').toBe(
    'SERVING',
  );
  await details.getByRole('button', { name: 'Drain' }).click();
  await question.getByRole('button', { name: 'Drain' }).click();
  await details.getByText('The node is draining 1 request').waitFor();
  await details.getByText('draining', { exact: true }).first().waitFor();
  expect(await answer.text()).toMatch(/data: \[DONE\]\s*$/);
  expect(await agent.end(15_000)).toMatchObject({ code: 0 });
  await details.getByText('left', { exact: true }).first().waitFor();
  await expect.poll(() => details.getByRole('button', { name: 'Drain' }).count()).toBe(0);
  // It left no log, which is a 404; browsers report that as an error.
  expect(complaints.filter((one) => !one.includes('status of 404'))).toEqual([]);
});

it('a node tells its log, its GPUs and its load while its page is open, and a failed one what it printed last', async () => {
  const { gateway, token } = visitors.house;
  const model = 'stand-in/model-4';
  // The tool is a mock, because there is no GPU here.
  const script = [
    `import { createServer } from 'node:http';`,
    `const json = (response, body) => response.setHeader('content-type', 'application/json').end(JSON.stringify(body));`,
    `const server = createServer((request, response) => request.url === '/v1/models'`,
    `  ? json(response, { object: 'list', data: [{ id: '${model}', object: 'model' }] })`,
    `  : request.url === '/metrics' ? response.end('vllm:num_requests_running 3\\nvllm:num_requests_waiting 2\\nvllm:kv_cache_usage_perc 0.4\\n')`,
    `  : request.url === '/fail' ? (console.error('Traceback\\n  File "x.py"\\nCUDA out of memory'), process.exit(1)) : response.writeHead(404).end());`,
    `server.listen(Number(process.argv.at(-1)), '127.0.0.1', () => console.log('weights loaded'));`,
  ].join('\n');
  const port = await freePort();
  await startAgent({
    gateways: [gateway.url],
    token,
    env: { PATH: `${join(ROOT, 'test/slurm')}:${process.env.PATH}` },
    args: ['--engine-port', String(port), '--', process.execPath, '--input-type=module', '-e', script, String(port)],
  });
  const [node] = await gateway.serving(1, 15_000, model);
  const { page, complaints } = await visitors.enter();
  await page.goto(`${gateway.url}/#/nodes/${node?.session}`);
  await page.getByRole('region', { name: 'Log', exact: true }).getByText('weights loaded').waitFor();
  await page.getByRole('img', { name: /^Tokens per second/ }).waitFor();
  await page.getByRole('img', { name: /^GPUs \(%\), in the last hour/ }).waitFor();
  const told = z
    .object({ gpus: z.array(z.object({ use: z.number() })) })
    .parse(await gateway.admin('GET', `nodes/${node?.session}/telemetry`));
  expect(told.gpus).toHaveLength(4);
  await fetch(`http://127.0.0.1:${port}/fail`).catch(() => undefined);
  await page.getByText('Last output of the engine and the agent.').waitFor();
  expect(await page.getByRole('region', { name: 'Log', exact: true }).innerText()).toContain('  File "x.py"');
  await page.getByRole('region', { name: 'Joins and losses' }).getByText('engine').first().waitFor();
  // An agent that has left cannot be asked; browsers report that response as an error.
  expect(complaints.filter((one) => !one.includes('status of 404') && !one.includes('status of 409'))).toEqual([]);
});

it('the plots of a node begin before its page was opened', async () => {
  const { house: cluster } = visitors;
  const [node] = await cluster.gateway.serving(1);
  const body = chatBody({ tokens: 60, tokensPerSecond: 40 }, { stream: true });
  await (await cluster.ask('/v1/chat/completions', body)).text();
  const { page } = await visitors.enter();
  // Chromium may have dropped a body before the test asks for it.
  const loads: unknown[] = [];
  await page.route('**/loads', async (route) => {
    const response = await route.fetch();
    loads.push(await response.json());
    await route.fulfill({ response });
  });
  await page.goto(`${cluster.gateway.url}/#/nodes/${node?.session}`);
  await expect.poll(() => loads.length).toBeGreaterThan(0);
  const { data } = z.object({ data: z.array(z.object({ running: z.number() })) }).parse(loads[0]);
  expect(data.length).toBeGreaterThan(0);
  await page.getByRole('img', { name: 'Requests, in the last hour' }).waitFor();
});

it('a thousand nodes (a stand-in registry) are drawn and filtered without a hang', async () => {
  const { page } = await visitors.enter();
  const [like] = z
    .object({ data: z.array(z.looseObject({ session: z.string() })) })
    .parse(await visitors.house.gateway.admin('GET', '../v1/registry/nodes')).data;
  const data = Array.from({ length: 1000 }, (_, n) => ({
    ...like,
    session: `${String(n).padStart(4, 'a')}${'a'.repeat(22)}`,
    cluster: `c${n % 40}`,
  }));
  await page.route('**/v1/registry/nodes/stream?load=1', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `event: snapshot\ndata: ${JSON.stringify({ object: 'list', data })}\n\n`,
    }),
  );
  await page.goto(`${visitors.house.gateway.url}/#/nodes`);
  await page.reload();
  await page.locator('p').getByText('1,000 nodes').waitFor();
  // All clusters are listed, and those with the most nodes are drawn.
  await page.getByRole('region', { name: '40 clusters with 1,000 nodes' }).waitFor();
  expect(await page.getByRole('button', { name: /^Find nodes of/ }).count()).toBe(12);
  await page.getByRole('button', { name: 'Show all 40 clusters' }).click();
  expect(await page.getByRole('button', { name: /^Find nodes of/ }).count()).toBe(40);
  const startedAt = performance.now();
  await page.getByLabel('Find', { exact: true }).fill('c17');
  await page.locator('p').getByText('25 nodes').waitFor();
  expect(performance.now() - startedAt).toBeLessThan(promise(10_000));
});
