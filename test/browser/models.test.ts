/** The page of models, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { promise } from '../support/patience.ts';
import { atEnd, temporaryDirectory } from '../support/processes.ts';
import { MOCK_TEMPLATE, writeTemplates } from '../support/templates.ts';
import { MODEL } from '../support/test-cluster.ts';
import { go, openDoor } from './visitors.ts';

const SECOND = 'stand-in/model-2';
/** Long enough for the test to see it. */
const STREAM = {
  model: MODEL,
  stream: true,
  messages: [{ role: 'user', content: 'Go on' }],
  stand_in: { tokens: 100_000, tokensPerSecond: 40 },
};
const visitors = openDoor();

it('a model appears when its node serves and is gone when it is, without a reload; its code answers', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Models');
  await page.getByRole('heading', { name: MODEL }).waitFor();
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const agent = await startAgent({
    gateways: [visitors.house.gateway.url],
    token: visitors.house.token,
    engineUrl: engine.url,
  });
  await visitors.house.gateway.serving(1, 15_000, SECOND);
  const known = performance.now();
  await page.getByRole('heading', { name: SECOND }).waitFor();
  expect(performance.now() - known).toBeLessThan(promise(10_000));
  agent.signal('SIGTERM');
  await page.getByRole('heading', { name: SECOND }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Code' }).click();
  const code = await page.getByRole('dialog').locator('pre').innerText();
  const env = { ...process.env, OPENAI_API_KEY: visitors.house.key };
  // Not spawnSync, because the mock engine runs in this process.
  const done = await promisify(execFile)('bash', ['-c', code], { env });
  expect(z.object({ model: z.string() }).parse(JSON.parse(done.stdout)).model).toBe(MODEL);
  expect(complaints).toEqual([]);
});

it('the code of a model with an evil name asks for that model, and runs nothing else', async () => {
  const { page } = await visitors.enter();
  await go(page, 'Models');
  const [like] = z
    .object({ data: z.array(z.looseObject({ session: z.string() })) })
    .parse(await visitors.house.gateway.admin('GET', '../v1/registry/nodes')).data;
  const evil = "it's'; echo owned; echo '";
  const data = [{ ...like, models: [{ id: evil, state: 'ready' }] }];
  await page.route('**/v1/registry/nodes/stream?load=1', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `event: snapshot\ndata: ${JSON.stringify({ object: 'list', data })}\n\n`,
    }),
  );
  await page.reload();
  await page.getByRole('button', { name: 'Code' }).click();
  const code = await page.getByRole('dialog').locator('pre').innerText();
  const env = { ...process.env, OPENAI_API_KEY: visitors.house.key };
  const { stdout } = await promisify(execFile)('bash', ['-c', code], { env });
  expect(z.object({ error: z.object({ code: z.string() }) }).parse(JSON.parse(stdout)).error.code).toBe(
    'model_not_found',
  );
});

it('a model with replicas of different kinds says so, and names the kind of each node', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Models');
  const [like] = z
    .object({ data: z.array(z.looseObject({ session: z.string() })) })
    .parse(await visitors.house.gateway.admin('GET', '../v1/registry/nodes')).data;
  const served = { id: 'org/mixed', state: 'ready' };
  const data = [
    { ...like, session: 'a'.repeat(26), models: [{ ...served, quantization: 'bf16', context_length: 40_960 }] },
    { ...like, session: 'b'.repeat(26), models: [{ ...served, quantization: 'fp8', context_length: 32_768 }] },
    { ...like, session: 'c'.repeat(26), models: [{ ...served, id: 'org/equal', quantization: 'fp8' }] },
  ];
  await page.route('**/v1/registry/nodes/stream?load=1', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `event: snapshot\ndata: ${JSON.stringify({ object: 'list', data })}\n\n`,
    }),
  );
  await page.reload();
  const tile = (name: string) => page.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) });
  await tile('org/mixed').getByText('replicas differ').waitFor();
  await tile('org/mixed').getByText('32,768 tokens, 40,960 tokens').waitFor();
  for (const kind of ['bf16, 40,960 tokens', 'fp8, 32,768 tokens'])
    await tile('org/mixed').getByRole('cell', { name: kind }).waitFor();
  expect(await tile('org/equal').getByText('replicas differ').count()).toBe(0);
  expect(complaints).toEqual([]);
});

it('where a browser gives no clipboard there is no button for it', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Models');
  const code = async () => {
    await page.getByRole('button', { name: 'Code' }).click();
    await page.getByRole('dialog').locator('pre').waitFor();
    return page.getByRole('dialog').getByRole('button', { name: 'Copy' }).count();
  };
  expect(await code()).toBe(1);
  await page.addInitScript("Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined })");
  await page.reload();
  expect(await code()).toBe(0);
  expect(complaints).toEqual([]);
});

it('a gateway that answers with errors for a while is found again', async () => {
  const { page } = await visitors.enter();
  await go(page, 'Models');
  let down = true;
  await page.route('**/v1/registry/nodes/stream?load=1', (route) =>
    down ? route.fulfill({ status: 502, body: 'bad gateway' }) : route.continue(),
  );
  await page.reload();
  await page.getByText('connection lost, reconnecting').waitFor();
  down = false;
  await page.getByRole('heading', { name: MODEL }).waitFor();
  await page.getByText('connected', { exact: true }).waitFor();
});

it('the load of a model and its tokens per second are those of its engines now, and unknown a moment after they stopped', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await go(page, 'Models');
  const card = page.locator('.card').filter({ has: page.getByRole('heading', { name: MODEL }) });
  await card.getByText('unknown').nth(1).waitFor();
  const answers = [1, 2].map(() => visitors.house.ask('/v1/chat/completions', STREAM));
  await card.getByText('2 running, 0 waiting').waitFor();
  const rate = card.locator('dt', { hasText: 'Tokens/s' }).locator('+ dd');
  // Two streams at 40 tokens a second.
  await expect.poll(async () => Math.abs(Number(await rate.innerText()) - 80)).toBeLessThan(16);
  for (const answer of await Promise.all(answers)) await answer.body?.cancel();
  await card.getByText('unknown').nth(1).waitFor();
  expect(complaints).toEqual([]);
});

it('an operator describes a model, and a consumer reads it, finds it by it, and tries the model', async () => {
  const operator = await visitors.enter();
  await go(operator.page, 'Models');
  const { page: theirs } = operator;
  await theirs.getByRole('button', { name: 'Describe' }).first().click();
  await theirs.getByLabel('Description').fill('Good for **herons**.');
  await theirs.getByLabel('Size').fill('8B');
  await theirs.getByLabel('License').fill('Apache-2.0');
  await theirs.getByLabel('Page about the model').fill('https://example.org/m');
  await theirs.getByRole('group', { name: 'Reads' }).getByLabel('pictures').check();
  await theirs.getByLabel('Calls tools').selectOption('yes');
  await theirs.getByRole('button', { name: 'Save' }).click();
  await theirs.locator('.card strong').getByText('herons').waitFor();
  expect(operator.complaints).toEqual([]);

  const { page, complaints } = await visitors.enter(visitors.house.key);
  await go(page, 'Models');
  await page.getByLabel('Find a model').fill('herons');
  const card = page.locator('.card').filter({ has: page.getByRole('heading', { name: MODEL }) });
  for (const text of ['8B', 'Apache-2.0', 'pictures', 'tools']) await card.getByText(text, { exact: true }).waitFor();
  expect(await page.getByRole('button', { name: 'Describe' }).count()).toBe(0);
  await page.getByLabel('Find a model').fill('cormorants');
  await page.getByText('No model contains these words.').waitFor();
  await page.getByLabel('Find a model').fill('');
  await card.getByRole('link', { name: 'Try' }).click();
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  expect(complaints).toEqual([]);
});

it('a model whose nodes have left is listed apart, with when', async () => {
  const { page } = await visitors.enter();
  const engine = await startEngine({ models: ['stand-in/model-4'] });
  atEnd(() => engine.close());
  const agent = await startAgent({
    gateways: [visitors.house.gateway.url],
    token: visitors.house.token,
    engineUrl: engine.url,
  });
  await visitors.house.gateway.serving(1, 15_000, 'stand-in/model-4');
  await go(page, 'Models');
  await page.getByRole('heading', { name: 'stand-in/model-4' }).waitFor();
  agent.signal('SIGTERM');
  await page.getByRole('heading', { name: 'stand-in/model-4' }).waitFor({ state: 'detached' });
  const row = page.getByRole('listitem').filter({ hasText: 'stand-in/model-4' });
  await row.getByText('gone since').waitFor();
});

it('an operator loads a model on an idle node, moves it, is told why not, and unloads it; a consumer cannot', async () => {
  const { gateway, token, key } = visitors.house;
  const directory = await writeTemplates({ 'stand-in': MOCK_TEMPLATE });
  for (let n = 0; n < 2; n++)
    await startAgent({ gateways: [gateway.url], token, args: ['--accept-deployments', directory] });
  const { page, complaints } = await visitors.enter();
  await go(page, 'Models');
  const open = () => page.getByRole('button', { name: 'Load a model' }).click();
  const model = 'stand-in/by-hand';
  await open();
  await expect.poll(() => page.getByLabel('Node', { exact: true }).locator('option').count()).toBe(3);
  await page.getByLabel('Model', { exact: true }).fill('evil/model');
  await page.getByRole('button', { name: 'Load', exact: true }).click();
  await page.getByText('"evil/model" is not allowed').waitFor();
  await page.getByLabel('Model', { exact: true }).fill(model);
  await page.getByLabel('Parameters').fill('rate = 500');
  await page.getByRole('button', { name: 'Load', exact: true }).click();
  await page.getByRole('status').getByText(`loads ${model}`).waitFor();
  const card = page.locator('.card').filter({ has: page.getByRole('heading', { name: model }) });
  await card.getByText('1 node serving').waitFor();
  const [first] = await gateway.serving(1, 20_000, model);

  const act = async (session: string | undefined, name: string) => {
    await card.getByRole('button', { name: `Actions for ${model} on node ${session?.slice(0, 8)}` }).click();
    await page.getByRole('menuitem', { name }).click();
  };
  await act(first?.session, 'Move');
  await page.getByRole('button', { name: 'Move', exact: true }).click();
  await expect
    .poll(async () => (await gateway.nodes()).find(({ session }) => session === first?.session)?.state, {
      timeout: 20_000,
    })
    .toBe('LEFT');
  const [second] = await gateway.serving(1, 20_000, model);
  await act(second?.session, 'Unload');
  await page.getByRole('alertdialog').getByRole('button', { name: 'Unload' }).click();
  await page.getByRole('status').getByText(`unloads ${model}`).waitFor();
  await card.waitFor({ state: 'detached' });

  const consumer = await visitors.enter(key);
  await go(consumer.page, 'Models');
  await consumer.page.getByRole('heading', { name: MODEL }).waitFor();
  expect(await consumer.page.getByRole('button', { name: 'Load a model' }).count()).toBe(0);
  expect(await consumer.page.getByRole('button', { name: /^Actions/ }).count()).toBe(0);
  expect([...complaints, ...consumer.complaints]).toEqual([expect.stringContaining('409')]);
});

it('an adapter is shown with its model, and an operator loads and unloads it', async () => {
  const { gateway, token } = visitors.house;
  const engine = await startEngine({ models: ['stand-in/parent'], lora: true });
  atEnd(() => engine.close());
  const directory = await temporaryDirectory('otela-lora');
  await mkdir(join(directory, 'poems'));
  const config = JSON.stringify({ base_model_name_or_path: 'stand-in/parent' });
  await writeFile(join(directory, 'poems', 'adapter_config.json'), config);
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args: ['--lora-dir', directory] });
  const { page, complaints } = await visitors.enter();
  await go(page, 'Models');
  const card = page.locator('.card').filter({ has: page.getByRole('heading', { name: 'poems' }) });
  await card.getByText('loads on request at 1 node').waitFor();
  await card.locator('dt', { hasText: 'Adapter of' }).locator('+ dd').getByText('stand-in/parent').waitFor();
  const act = async (name: string) => {
    await card.getByRole('button', { name: /^Actions for poems/ }).click();
    await page.getByRole('menuitem', { name }).click();
    await page.getByRole('alertdialog').getByRole('button', { name }).click();
  };
  await act('Load');
  await card.getByText('1 node serving').waitFor();
  expect(engine.adapters()).toEqual(['poems']);
  await act('Unload');
  await card.getByText('loads on request at 1 node').waitFor();
  expect(complaints).toEqual([]);
});
