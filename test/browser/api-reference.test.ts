/** The API reference at /docs, in a real browser against a real gateway. */
import { expect, it } from 'vitest';
import { openPage } from '../support/browser.ts';
import { MODEL } from '../support/test-cluster.ts';
import { findings } from './axe.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

it('a reader of /docs finds a request, reads what it takes, and tries it with a key', async () => {
  const { page, complaints } = await openPage(visitors.browser);
  await page.goto(`${visitors.house.gateway.url}/docs`);
  await page.getByRole('heading', { level: 1, name: 'API reference' }).waitFor();
  await page.getByLabel('Find').fill('post chat');
  await page.getByText('/v1/chat/completions').click();
  const chat = page.locator('#post_v1_chat_completions');
  await chat.getByText('x-otela-require').first().waitFor();
  await page.getByLabel('API key for tries').fill(visitors.house.key);
  const body = { model: MODEL, messages: [{ role: 'user', content: 'Hi' }], stand_in: { tokens: 3 } };
  await chat.getByLabel('Body').fill(JSON.stringify(body));
  await chat.getByRole('button', { name: 'Send POST /v1/chat/completions' }).click();
  await chat.getByRole('status').getByText('200').waitFor();
  await chat.getByRole('region', { name: 'Headers' }).getByText('x-otela-node').waitFor();
  expect(await chat.getByRole('region', { name: 'Answer' }).innerText()).toContain('"chat.completion"');
  await chat.getByLabel('Body').fill('{');
  await chat.getByRole('button', { name: 'Send POST' }).click();
  await chat.getByRole('status').getByText('400').waitFor();
  // Browsers report a refused request as an error.
  expect(complaints.filter((one) => !one.includes('status of 400'))).toEqual([]);
});

it('members, bounds and an example body come from the schemas, and a path parameter goes into the path', async () => {
  const { gateway } = visitors.house;
  const { page, complaints } = await visitors.enter();
  await page.goto(`${gateway.url}/docs#post_admin_users`);
  const users = page.locator('#post_admin_users');
  await users.getByText('one of consumer, provider, operator').first().waitFor();
  await users.getByLabel('Body').fill('{"name": "Grace"}');
  await users.getByRole('button', { name: 'Send POST /admin/users' }).click();
  await users.getByRole('status').getByText('201').waitFor();
  const made = await users.getByRole('region', { name: 'Answer' }).innerText();
  const id = /"(user_[^"]+)"/.exec(made)?.[1] ?? '';
  await page.getByLabel('Find').fill('get /admin/users/');
  const one = page.locator('#get_admin_users_id');
  await one.getByText('/admin/users/{id}').click();
  await one.getByLabel('id (in the path)').fill(id);
  await one.getByRole('button', { name: 'Send GET' }).click();
  await one.getByRole('status').getByText('Grace').waitFor();
  expect(complaints).toEqual([]);
});

it('files, uploads, batches, sealing, factories and administration are there, each with what it takes and an example', async () => {
  const { page, complaints } = await openPage(visitors.browser);
  await page.goto(`${visitors.house.gateway.url}/docs`);
  const groups = page.getByRole('navigation', { name: 'Groups' });
  for (const name of ['models', 'files', 'uploads', 'batches', 'factory', 'factory-tokens', 'users', 'settings'])
    await groups.getByRole('link', { name: new RegExp(`^${name} \\d+$`) }).waitFor();
  await page.getByLabel('API key for tries').fill(visitors.house.key);
  const open = async (method: string, path: string) => {
    await page.getByLabel('Find').fill(`${method} ${path}`);
    await page.getByText(path, { exact: true }).first().click();
    return page.locator(`#${method}_${path.replace(/\W+/g, '_').replace(/^_|_$/g, '')}`);
  };
  const uploads = await open('post', '/v1/uploads');
  expect(await uploads.getByLabel('Body').inputValue()).toContain('"purpose": "batch"');
  await uploads.getByRole('button', { name: 'Send POST' }).click();
  await uploads.getByRole('status').getByText('200').waitFor();
  const files = await open('post', '/v1/files');
  const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: MODEL, messages: [] } };
  await files.getByLabel('file (in the form)').setInputFiles({
    name: 'tried.jsonl',
    mimeType: 'application/jsonl',
    buffer: Buffer.from(JSON.stringify(line)),
  });
  await files.getByLabel('purpose (in the form)').fill('batch');
  await files.getByRole('button', { name: 'Send POST /v1/files' }).click();
  await files.getByRole('status').getByText('tried.jsonl').waitFor();
  const id = /"(file-[^"]+)"/.exec(await files.getByRole('region', { name: 'Answer' }).innerText())?.[1] ?? '';
  const batches = await open('post', '/v1/batches');
  const batch = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' };
  await batches.getByLabel('Body').fill(JSON.stringify(batch));
  await batches.getByRole('button', { name: 'Send POST /v1/batches' }).click();
  await batches.getByRole('status').getByText('validating').waitFor();
  const seal = await open('get', '/v1/otela/seal');
  await seal.getByLabel('model (in the query)').fill(MODEL);
  await seal.getByRole('button', { name: 'Send GET' }).click();
  await seal.getByRole('status').getByText('"list"').waitFor();
  expect(complaints).toEqual([]);
});

it('axe finds nothing on it, and on a phone it is no wider than the page', async () => {
  for (const options of [{ colorScheme: 'dark' as const }, { viewport: { width: 360, height: 740 } }]) {
    const { page } = await openPage(visitors.browser, { ...options, bypassCSP: true });
    await page.goto(`${visitors.house.gateway.url}/docs#post_admin_keys`);
    await page.locator('#post_admin_keys').getByLabel('Body').waitFor();
    expect(await findings(page, 'the reference')).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth')).toBe(0);
  }
});
