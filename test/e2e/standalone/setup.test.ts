/** `otela-gateway setup` with flags. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { SETUP_COMMAND } from '../../../gateway/cli/setup-command.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';

const PUBLIC_URL = 'https://gw.example.org';
const ISSUER = 'https://login.example.org';
const LOGIN = ['--public-url', PUBLIC_URL, '--oidc', ISSUER, '--client-id', 'otela'];
let gateway: Gateway;
beforeAll(async () => {
  gateway = await Gateway.start();
});
afterAll(endAll);

/** Runs the command. Returns its exit code or error, and its lines. */
async function setup(...args: string[]) {
  const lines: string[] = [];
  const out = vi.spyOn(console, 'log').mockImplementation((line: unknown) => void lines.push(String(line)));
  const connection = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  try {
    const code = await SETUP_COMMAND.run([...args, ...connection]);
    return { code, out: lines.join('\n') };
  } catch (error) {
    return { code: -1, out: error instanceof Error ? error.message : String(error) };
  } finally {
    out.mockRestore();
  }
}

const settingsSchema = z.object({ public_url: z.string().nullable(), oidc: z.array(z.looseObject({})) });
const settings = async () => settingsSchema.parse(await gateway.admin('GET', 'settings'));
const listSchema = z.object({ data: z.array(z.looseObject({ name: z.string() })) });
const projects = async () =>
  listSchema.parse(await gateway.admin('GET', 'projects')).data.filter(({ name }) => name === 'Physics');

it('makes the settings, a project and a join token', async () => {
  const { code, out } = await setup(...LOGIN, '--project', 'Physics', '--provider', 'eth', '--cluster', 'alps');
  expect([code, out]).toEqual([0, expect.stringContaining(`${PUBLIC_URL}/login/callback`)]);
  expect(await settings()).toMatchObject({
    public_url: PUBLIC_URL,
    oidc: [{ issuer: ISSUER, name: 'login.example.org', client_id: 'otela', admits: 'known' }],
  });
  expect(await projects()).toHaveLength(1);
  expect(out).toMatch(/Join token of eth, shown only once:\n {2}\S{20,}/);
});

it('keeps what exists when it runs again', async () => {
  await gateway.admin('PATCH', 'settings', {
    oidc: [{ issuer: ISSUER, name: 'ETH', client_id: 'old', admits: 'everybody', group_claim: 'groups' }],
  });
  const { code, out } = await setup('--oidc', ISSUER, '--client-id', 'otela', '--project', 'Physics');
  expect([code, out]).toEqual([0, expect.stringContaining('exists')]);
  const { public_url, oidc } = await settings();
  expect(public_url).toBe(PUBLIC_URL);
  expect(oidc).toEqual([
    expect.objectContaining({ name: 'ETH', client_id: 'otela', admits: 'everybody', group_claim: 'groups' }),
  ]);
  expect(await projects()).toHaveLength(1);
});

it.each([
  [['--oidc', ISSUER], '--oidc needs --client-id'],
  [['--oidc', 'login', '--client-id', 'a'], '--oidc login is not a URL'],
  [['--public-url', 'ftp://gw.example.org'], 'public_url'],
])('refuses %j and changes nothing', async (flags, message) => {
  const before = await settings();
  expect(await setup(...flags)).toEqual({ code: -1, out: expect.stringContaining(message) });
  expect(await settings()).toEqual(before);
});
