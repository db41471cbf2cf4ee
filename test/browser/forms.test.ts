/**
 * Every form that edits stored data, in a real browser against a real gateway: it writes only what the user changed.
 */
import type { Page } from 'playwright-core';
import { beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { MODEL } from '../support/test-cluster.ts';
import { loaded, openDoor } from './visitors.ts';

const visitors = openDoor();
const idSchema = z.object({ id: z.string() });
type Stored = Record<string, unknown>;

interface FormCase {
  name: string;
  /** Location of the page. */
  at: string;
  /** The row, and the entry of its menu that opens the form; absent: the form is part of the page. */
  row?: string;
  action?: string;
  /** The API path of the stored object. */
  path(): string;
  /** Picks the object from the response. */
  of?(answer: Stored): unknown;
  /** A concurrent change, made while the form is open. */
  other: { method: string; path(): string; body: object };
  /** The user's change in the form. */
  field: string;
  value: string;
  /** The stored state that must result: both changes. */
  both: object;
}

const ids = { user: '', project: '', key: '' };
const ISSUER = { issuer: 'https://login.example.org', name: 'University', client_id: 'otela' };
const LIMITS = { requests_per_minute: 50, models: { [MODEL]: { requests_per_minute: 5 } } };

beforeAll(async () => {
  const { gateway } = visitors.house;
  const made = async (path: string, body: object) => idSchema.parse(await gateway.admin('POST', path, body)).id;
  ids.project = await made('projects', {
    name: 'Climate',
    models: [],
    limits: LIMITS,
    routing: { aliases: { fast: MODEL } },
  });
  ids.user = await made('users', { name: 'Ada', email: 'ada@example.org', project_id: ids.project, limits: LIMITS });
  ids.key = await made('keys', {
    name: 'laptop',
    models: [MODEL],
    limits: LIMITS,
    expires_at: '2099-12-01T08:00:00Z',
  });
  await gateway.admin('POST', 'providers', { id: 'chem', name: 'Chemistry' });
  await gateway.admin('PUT', `projects/${ids.project}/members/${ids.user}`, {});
  await gateway.admin('PATCH', `projects/${ids.project}/members/${ids.user}`, { limits: LIMITS });
  const id = encodeURIComponent(MODEL);
  await gateway.admin('PUT', `models/${id}`, { aliases: ['one'], start_wait_ms: 600_000 });
  await gateway.admin('PUT', `routing/${id}`, { weights: [{ weight: 2, cluster: 'alps', class: 'batch' }], kinds: [] });
  await gateway.admin('PUT', `model-cards/${id}`, { description: 'A stand-in', input: ['text'], tools: true });
  await gateway.admin('PATCH', `catalogue/${id}`, { access: ['group:a'], sunset_at: '2099-01-01T08:00:00Z' });
  await gateway.admin('PATCH', 'settings', {
    queue: { unary_ms: 20_000, weights: { [ids.project]: 2 } },
    routing: { timeouts: { standard: { first_byte_ms: 900_000 } } },
    oidc: [{ ...ISSUER, groups: { 'cn=ml,dc=eth': ids.project }, group_claim: 'groups' }],
  });
});

const settings = () => 'settings';
const model = (room: string) => () => `${room}/${encodeURIComponent(MODEL)}`;
const inList =
  (id: () => string) =>
  ({ data }: Stored) =>
    z
      .array(z.looseObject({}))
      .parse(data)
      .find((one) => [one.id, one.user_id].includes(id()));

const FORMS: FormCase[] = [
  {
    name: 'user',
    at: 'admin/users',
    row: 'Ada',
    action: 'Edit',
    path: () => `users/${ids.user}`,
    other: {
      method: 'PATCH',
      path: () => `users/${ids.user}`,
      body: { limits: { ...LIMITS, concurrent_requests: 3 } },
    },
    field: 'Tokens per minute',
    value: '70',
    both: { limits: { ...LIMITS, concurrent_requests: 3, tokens_per_minute: 70 }, email: 'ada@example.org' },
  },
  {
    name: 'project',
    at: 'admin/projects',
    row: 'Climate',
    action: 'Edit',
    path: () => `projects/${ids.project}`,
    other: {
      method: 'PATCH',
      path: () => `projects/${ids.project}`,
      body: { limits: { ...LIMITS, concurrent_requests: 3 } },
    },
    field: 'Tokens per minute',
    value: '70',
    both: { limits: { ...LIMITS, concurrent_requests: 3, tokens_per_minute: 70 }, models: [] },
  },
  {
    name: 'key',
    at: 'keys',
    row: 'laptop',
    action: 'Edit',
    path: () => `keys/${ids.key}`,
    other: { method: 'PATCH', path: () => `keys/${ids.key}`, body: { models: [MODEL, 'b'] } },
    field: 'Models',
    value: `${MODEL}\nc`,
    both: { models: [MODEL, 'b', 'c'], limits: LIMITS, expires_at: expect.stringContaining('08:00:00') },
  },
  {
    name: 'provider',
    at: 'providers',
    row: 'Chemistry',
    action: 'Edit',
    path: () => 'providers/chem',
    other: { method: 'PATCH', path: () => 'providers/chem', body: { trusted_by_default: false } },
    field: 'Name',
    value: 'Chemists',
    both: { name: 'Chemists', trusted_by_default: false },
  },
  {
    name: 'settings of a model',
    at: 'admin/routing',
    row: MODEL,
    action: 'Edit routing',
    path: model('models'),
    other: {
      method: 'PUT',
      path: model('models'),
      body: { aliases: ['one', 'two'], start_wait_ms: 600_000, stall_ms: 9_000 },
    },
    field: 'Aliases',
    value: 'one, three',
    both: { aliases: ['one', 'two', 'three'], start_wait_ms: 600_000, stall_ms: 9_000 },
  },
  {
    name: 'description of a model',
    at: 'admin/routing',
    row: MODEL,
    action: 'Edit description',
    path: () => 'model-cards',
    of: inList(() => MODEL),
    other: {
      method: 'PUT',
      path: model('model-cards'),
      body: { description: 'Another', input: ['text'], tools: true },
    },
    field: 'License',
    value: 'MIT',
    both: { description: 'Another', license: 'MIT', input: ['text'], tools: true },
  },
  {
    name: 'entry of the catalogue',
    at: 'access',
    row: MODEL,
    action: 'Edit',
    path: () => 'catalogue',
    of: inList(() => MODEL),
    other: { method: 'PATCH', path: model('catalogue'), body: { access: ['group:a', 'group:b'] } },
    field: 'Successor',
    value: 'org/next',
    both: { access: ['group:a', 'group:b'], successor: 'org/next', sunset_at: expect.stringContaining('08:00:00') },
  },
  {
    name: 'queue',
    at: 'admin/settings',
    path: settings,
    other: { method: 'PATCH', path: settings, body: { queue: { unary_ms: 20_000, places: 77, weights: {} } } },
    field: 'Maximum wait, streaming (s)',
    value: '33',
    both: { queue: expect.objectContaining({ unary_ms: 20_000, places: 77, stream_ms: 33_000 }) },
  },
  {
    name: 'issuer',
    at: 'admin/settings',
    row: 'University',
    action: 'Edit',
    path: settings,
    other: { method: 'PATCH', path: settings, body: { oidc: [] } },
    field: 'Name',
    value: 'The university',
    both: {
      oidc: [
        expect.objectContaining({ ...ISSUER, name: 'The university', groups: { 'cn=ml,dc=eth': expect.any(String) } }),
        expect.objectContaining({ name: 'Another' }),
      ],
    },
  },
];

/** Opens the form and returns the element that contains its own `Save` button. */
async function open(page: Page, { at, row, action, field }: FormCase) {
  await page.goto(`${visitors.house.gateway.url}/#/${at}`);
  await loaded(page);
  if (row === undefined || action === undefined) {
    const form = page.locator('form').filter({ has: page.getByLabel(field, { exact: true }) });
    await form.waitFor();
    return form;
  }
  await page.getByRole('button', { name: `Actions for ${row}` }).click();
  await page.getByRole('menuitem', { name: action, exact: true }).click();
  await page.getByRole('dialog').waitFor();
  return page.getByRole('dialog');
}

const stored = async ({ path, of = (answer) => answer }: FormCase) =>
  of(z.looseObject({}).parse(await visitors.house.gateway.admin('GET', path())));

describe.each(FORMS)('$name', (form) => {
  it('is saved as it was loaded, and nothing is written', async () => {
    const { page } = await visitors.enter();
    const written: string[] = [];
    page.on('request', (request) => {
      if (request.method() !== 'GET' && request.url().includes('/admin/')) written.push(request.url());
    });
    const before = await stored(form);
    const opened = await open(page, form);
    await opened.getByRole('button', { name: 'Save', exact: true }).click();
    if (form.row === undefined) await opened.getByText('Saved').waitFor();
    else await opened.waitFor({ state: 'detached' });
    expect(written).toEqual([]);
    expect(await stored(form)).toEqual(before);
    await page.context().close();
  });

  it('takes nothing back that was changed while it was open', async () => {
    const { page } = await visitors.enter();
    const opened = await open(page, form);
    const { method, path, body } = form.other;
    // The whole list of issuers is one value, and the concurrent change adds an issuer to it.
    const issuers = async () => z.looseObject({ oidc: z.array(z.looseObject({})) }).parse(await stored(form)).oidc;
    const more =
      'oidc' in body
        ? { oidc: [...(await issuers()), { ...ISSUER, issuer: 'https://b.example', name: 'Another' }] }
        : body;
    await visitors.house.gateway.admin(method, path(), more);
    await opened.getByLabel(form.field, { exact: true }).fill(form.value);
    await opened.getByRole('button', { name: 'Save', exact: true }).click();
    if (form.row === undefined) await opened.getByText('Saved').waitFor();
    else await opened.waitFor({ state: 'detached' });
    expect(await stored(form)).toMatchObject(form.both);
    await page.context().close();
  });
});

const WEIGHTS: FormCase = {
  name: 'weights',
  at: 'admin/routing',
  row: MODEL,
  action: 'Edit weights',
  path: model('routing'),
  other: { method: 'PUT', path: model('routing'), body: { weights: [{ weight: 5 }], kinds: [] } },
  field: 'Weight',
  value: '3',
  both: { weights: [{ weight: 5 }] },
};

it('rules of weights that were changed meanwhile are not overwritten, and the form says so', async () => {
  const { page } = await visitors.enter();
  const before = await stored(WEIGHTS);
  const unchanged = await open(page, WEIGHTS);
  await unchanged.getByRole('button', { name: 'Save', exact: true }).click();
  await unchanged.waitFor({ state: 'detached' });
  expect(await stored(WEIGHTS)).toEqual(before);
  const opened = await open(page, WEIGHTS);
  await visitors.house.gateway.admin('PUT', WEIGHTS.other.path(), WEIGHTS.other.body);
  await opened.getByLabel('Weight', { exact: true }).fill('3');
  await opened.getByRole('button', { name: 'Save', exact: true }).click();
  await opened.getByRole('alert').getByText('changed in another window').waitFor();
  expect(await stored(WEIGHTS)).toMatchObject(WEIGHTS.both);
  await page.context().close();
});
