/** The configuration of a gateway as one file: `otela-gateway export`, `diff` and `apply`. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import * as z from 'zod';
import {
  APPLY_COMMAND,
  DIFF_COMMAND,
  EXPORT_COMMAND,
} from '../../../gateway/cli/configuration/configuration-commands.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';

const COMMANDS = { export: EXPORT_COMMAND, diff: DIFF_COMMAND, apply: APPLY_COMMAND };
const ISSUER = 'https://login.example.org';
let directory: string;
let gateway: Gateway;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'otela-configuration-'));
  gateway = await Gateway.start();
});
afterAll(endAll);

/** Runs a command at a gateway. Returns its exit code or error, and its lines. */
async function otela(at: Gateway, verb: keyof typeof COMMANDS, ...args: string[]) {
  const lines: string[] = [];
  const errors: string[] = [];
  const out = vi.spyOn(console, 'log').mockImplementation((line: unknown) => void lines.push(String(line)));
  const err = vi.spyOn(console, 'error').mockImplementation((line: unknown) => void errors.push(String(line)));
  const door = ['--url', at.url, '--key-file', join(at.data, 'admin.key')];
  try {
    const code = await COMMANDS[verb].run([...args, ...door]);
    return { code, out: lines.join('\n'), err: errors.join('\n') };
  } catch (error) {
    return { code: -1, out: lines.join('\n'), err: error instanceof Error ? error.message : String(error) };
  } finally {
    out.mockRestore();
    err.mockRestore();
  }
}

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

const objectSchema = z.looseObject({ id: z.string().optional() });
/** Calls the REST API. */
async function admin(at: Gateway, ...[method, path, body]: Parameters<Gateway['admin']>) {
  return objectSchema.parse(await at.admin(method, path, body));
}

const auditSchema = z.object({ data: z.array(z.object({ id: z.number() })) });
/** Returns the number of the newest line of the audit log. */
async function auditLines(at: Gateway): Promise<number> {
  return auditSchema.parse(await at.admin('GET', 'audit?limit=1')).data[0]?.id ?? 0;
}

/** Fills a gateway by its REST API, with everything that a file can have. */
async function fill(at: Gateway): Promise<void> {
  await admin(at, 'POST', 'providers', { id: 'eth', name: 'ETH Zurich', max_nodes: 7, models: ['org/*'] });
  await admin(at, 'POST', 'providers', { id: 'old' });
  await admin(at, 'DELETE', 'providers/old');
  const physics = await admin(at, 'POST', 'projects', {
    name: 'Physics "2"',
    limits: { requests_per_minute: 600, models: { '*': { tokens_per_minute: 10 } } },
    trusted_providers: [],
    routing: { aliases: { fast: 'org/a' } },
    resume: true,
  });
  const closed = await admin(at, 'POST', 'projects', { name: 'Closed' });
  await admin(at, 'PATCH', `projects/${closed.id}`, { disabled: true });
  const ada = await admin(at, 'POST', 'users', { name: 'Ada', email: 'ada@example.org', limits: {} });
  const bob = { name: 'Bob', issuer: ISSUER, subject: '4711', project_id: physics.id };
  const { id } = await admin(at, 'POST', 'users', bob);
  await admin(at, 'POST', 'users', { name: 'Eve', role: 'provider', provider: 'eth' });
  await admin(at, 'PUT', `projects/${physics.id}/members/${ada.id}`, { lead: true });
  await admin(at, 'PATCH', `projects/${physics.id}/members/${id}`, { limits: { requests_per_minute: 5 } });
  await admin(at, 'PATCH', 'catalogue/org%2Fa', {
    owner_id: ada.id,
    access: [physics.id, id, 'group:beta'],
    always_on: true,
    deprecated_at: '2027-01-31T00:00:00Z',
  });
  await admin(at, 'PUT', 'models/org%2Fa', { aliases: ['a'], class: 'reasoning' });
  await admin(at, 'PUT', 'model-cards/org%2Fa', {
    description: 'Two\nlines, "quoted".',
    tools: false,
    input: ['text'],
  });
  await admin(at, 'PATCH', 'settings', {
    user_limits: { tokens_per_month: 1_000_000 },
    sites: { 'eth/alps': { partition: 'gpu', modules: ['cuda/12.4'] } },
    retry_share: 0.5,
    oidc: [{ issuer: ISSUER, name: 'Institute', client_id: 'otela', project_claim: 'g', projects: { p: physics.id } }],
  });
}

it('an exported configuration makes an empty gateway equal, and a second time changes nothing', async () => {
  await fill(gateway);
  const first = await otela(gateway, 'export');
  expect([first.code, first.err]).toEqual([0, '']);
  expect(first.out).not.toMatch(/\b(?:user|proj)_[0-9a-f]/);
  const path = file('whole.toml', first.out);
  const empty = await Gateway.start();
  const applied = await otela(empty, 'apply', path);
  expect([applied.code, applied.err]).toEqual([0, '']);
  expect((await otela(empty, 'export')).out).toBe(first.out);
  const lines = await auditLines(empty);
  expect(await otela(empty, 'apply', path)).toEqual({ code: 0, out: 'nothing to change', err: '' });
  expect(await auditLines(empty)).toBe(lines);
  expect(await otela(gateway, 'diff', path, '--check')).toEqual({ code: 0, out: 'no differences', err: '' });
});

it('a line that is removed returns to its default, and diff says so before', async () => {
  const { out } = await otela(gateway, 'export');
  const path = file('less.toml', out.replace(/^max_nodes = 7\n/m, '').replace('always_on = true', 'always_on = false'));
  const diff = await otela(gateway, 'diff', path, '--check');
  expect([diff.code, diff.out.split('\n')]).toEqual([
    1,
    ['~ provider eth  max_nodes: 7 → –', '~ catalogue entry org/a  always_on: true → false'],
  ]);
  expect((await admin(gateway, 'GET', 'providers/eth')).max_nodes).toBe(7);
  expect((await otela(gateway, 'apply', path)).out).toContain('2 changes made');
  expect((await admin(gateway, 'GET', 'providers/eth')).max_nodes).toBeNull();
});

const usersSchema = z.object({ data: z.array(z.object({ name: z.string(), disabled_at: z.string().nullable() })) });

it('objects that the file does not name stay, unless --prune is given', async () => {
  const path = file('few.toml', '[projects."Physics \\"2\\""]\n[users."ada@example.org"]\n[catalogue]\n');
  const kept = await otela(gateway, 'apply', path);
  expect(kept.err).toBe('not in the file and unchanged: 1 × catalogue entry, 2 × user');
  const pruned = await otela(gateway, 'apply', path, '--prune');
  expect(pruned.out).toContain('- user Eve');
  const { data } = usersSchema.parse(await admin(gateway, 'GET', 'users'));
  expect(data.filter(({ disabled_at }) => disabled_at !== null).map(({ name }) => name)).toEqual(['Eve', 'Bob']);
  expect(await admin(gateway, 'GET', 'catalogue')).toMatchObject({ data: [] });
  // The section `providers` is absent, so its objects are not touched.
  expect(await admin(gateway, 'GET', 'providers/eth')).toMatchObject({ deleted_at: null });
  expect((await otela(gateway, 'apply', path, '--prune')).out).toBe('nothing to change');
});

it('a file with a mistake changes nothing, and each problem has its place', async () => {
  await admin(gateway, 'POST', 'projects', { name: 'Twice' });
  await admin(gateway, 'POST', 'projects', { name: 'Twice' });
  const lines = await auditLines(gateway);
  const wrong: [string, string][] = [
    ['[users.Ada', 'bad.toml:1: '],
    ['[users.Zoe]\nroll = "operator"', 'bad.toml: users.Zoe: Unrecognized key: "roll"'],
    ['[users.Zoe]\nrole = "king"', 'bad.toml: users.Zoe.role: '],
    ['[users.Zoe]\nproject = "Chemistry"', 'bad.toml: users.Zoe.project: there is no project "Chemistry"'],
    ['[users.Zoe]\nissuer = "https://x.example"', 'bad.toml: users.Zoe: issuer and subject must be given together'],
    ['[projects.Twice]\ntrace = true', 'have this name; rename one of them'],
    ['[catalogue."org/x"]\naccess = ["project:No"]', 'bad.toml: catalogue.org/x.access: there is no project "No"'],
    ['[settings]\npublic_url = "ftp://x"', 'bad.toml: settings.public_url: '],
  ];
  for (const [text, problem] of wrong) {
    const said = await otela(
      gateway,
      'apply',
      file('bad.toml', `[providers.new]\n${text}\n`.replace(/^\[providers.new\]\n(?=\[users.Ada\n)/, '')),
    );
    expect([text, said.code, said.err]).toEqual([text, -1, expect.stringContaining(problem)]);
  }
  expect((await otela(gateway, 'apply', join(directory, 'missing.toml'))).err).toContain('cannot read ');
  expect(await auditLines(gateway)).toBe(lines);
});

it('a run that the gateway refuses in the middle says how far it came, and is completed by the next', async () => {
  const text = '[projects.Biology]\n[users.Ida]\nproject = "Biology"\n[models."org/b"]\npolicy = "none-such"\n';
  const stopped = await otela(gateway, 'apply', file('half.toml', text));
  expect(stopped.err).toMatch(/^2 of 3 changes were made\. model org\/b: policy: must be one of /);
  const rest = await otela(gateway, 'apply', file('half.toml', text.replace('none-such', 'round-robin')));
  expect(rest.out.split('\n')).toEqual([expect.stringContaining('+ model org/b'), '1 changes made']);
});
