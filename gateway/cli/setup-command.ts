/** `otela-gateway setup`: the first settings of a new gateway, and the line with which a provider joins it. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { type ApiTarget, askGateway, ClientError, CONNECTION_FLAGS, targetAt } from './api-client.ts';
import { installLine } from './install-line.ts';

const QUESTIONS = {
  'public-url': { value: 'URL', help: 'public URL of the gateway; default: --url' },
  oidc: { value: 'URL', help: 'issuer of the identity provider with which people log in; "": none' },
  'oidc-name': { value: 'NAME', help: 'name of the identity provider on the login page' },
  'client-id': { value: 'ID', help: 'client id of this gateway at the identity provider' },
  admits: {
    value: 'known|everybody',
    takes: ['known', 'everybody'],
    help: 'whether all accounts of the identity provider may log in, or only users that an operator created',
  },
  project: { value: 'NAME', help: 'name of the first project; "": none' },
  provider: { value: 'P', help: 'id of the first provider of nodes; "": none' },
  cluster: { value: 'C', help: 'cluster of the provider; its join token is only for this cluster' },
} as const satisfies Flags;
const FLAGS = { ...QUESTIONS, ...CONNECTION_FLAGS } as const satisfies Flags;
type Answers = Record<keyof typeof QUESTIONS, string | undefined>;

export const SETUP_COMMAND: Command = {
  summary: 'make the first settings of a new gateway',
  examples: `[--public-url URL] [--oidc URL --client-id ID] [--project NAME] [--provider P]

  otela-gateway setup                                     asks for what no flag says
  otela-gateway setup --public-url https://gw.example.org --oidc https://login.example.org --client-id otela \\
    --admits everybody --project Physics --provider eth --cluster alps < /dev/null

Prints the line with which a provider installs an agent. It has a new join token, which is shown only once.
What exists already is kept: a second run adds what is missing, and another join token.`,
  flags: FLAGS,
  run: runSetup,
};

async function runSetup(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  const target = targetAt('/admin', values);
  const before = settingsSchema.parse(await call(target, 'GET', '/settings'));
  const answers = process.stdin.isTTY ? await ask(values, before.public_url ?? target.url) : values;
  if (answers.oidc && !answers['client-id']) throw new UsageError('--oidc needs --client-id');
  const url = (answers['public-url'] || before.public_url || target.url).replace(/\/+$/, '');
  const oidc = answers.oidc ? withIssuer(before.oidc, answers.oidc, answers) : undefined;
  await call(target, 'PATCH', '/settings', { public_url: url, ...(oidc !== undefined && { oidc }) });
  say('public URL', url);
  if (answers.oidc) {
    say('login', `${answers.oidc}, client ${answers['client-id']}`);
    say('', `register the redirect address ${url}/login/callback there`);
  }
  if (answers.project) await addProject(target, answers.project);
  if (answers.provider) await addProvider(target, url, answers.provider, answers.cluster);
  return EXIT_DONE;
}

const issuerSchema = z.looseObject({ issuer: z.string() });
const settingsSchema = z.object({ public_url: z.string().nullable(), oidc: z.array(issuerSchema) });
const projectsSchema = z.object({ data: z.array(z.object({ id: z.string(), name: z.string() })) });
const createdSchema = z.object({ id: z.string() });
const tokenSchema = z.object({ token: z.string() });

function call(target: ApiTarget, method: string, path: string, body?: Record<string, unknown>): Promise<unknown> {
  return askGateway({ ...target, path: `/admin${path}` }, method, '', body);
}

async function ask(flags: Answers, url: string): Promise<Answers> {
  // Imported here, because Node 16 lacks it, and could not say that it is too old.
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answers = { ...flags };
  const question = async (name: keyof Answers, text: string, standard: string) => {
    if (answers[name] !== undefined) return;
    const hint = standard === '' ? '' : ` [${standard}]`;
    answers[name] = (await terminal.question(`${text}${hint}: `)).trim() || standard;
  };
  try {
    await question('public-url', 'Public URL of this gateway', url);
    await question('oidc', 'Issuer of your identity provider, empty for none', '');
    if (answers.oidc) {
      await question('client-id', 'Client id of this gateway there', '');
      await question('oidc-name', 'Name on the login page', URL.parse(answers.oidc)?.hostname ?? '');
      await question('admits', `Which users may log in (${QUESTIONS.admits.value})`, 'known');
    }
    await question('project', 'Name of the first project, empty for none', '');
    await question('provider', 'Id of the first provider of nodes, for example "eth", empty for none', '');
    if (answers.provider) await question('cluster', 'Its cluster, empty for any', '');
    return answers;
  } finally {
    terminal.close();
  }
}

/** Returns the issuers with this one. If it exists, it keeps what no answer says. @throws UsageError */
function withIssuer(issuers: readonly z.infer<typeof issuerSchema>[], issuer: string, answers: Answers) {
  const { hostname } = URL.parse(issuer) ?? {};
  if (hostname === undefined) throw new UsageError(`--oidc ${issuer} is not a URL`);
  const { 'oidc-name': name, 'client-id': client_id, admits } = answers;
  const known = issuers.find((one) => one.issuer === issuer) ?? { issuer, name: hostname };
  const changed = { ...known, client_id, ...(name && { name }), ...(admits && { admits }) };
  return [...issuers.filter((one) => one.issuer !== issuer), changed];
}

async function addProject(target: ApiTarget, name: string): Promise<void> {
  const { data } = projectsSchema.parse(await call(target, 'GET', '/projects'));
  const known = data.find((one) => one.name === name);
  const { id } = known ?? createdSchema.parse(await call(target, 'POST', '/projects', { name }));
  say('project', `${name}  ${id}${known === undefined ? '' : '  exists'}`);
}

async function addProvider(
  target: ApiTarget,
  url: string,
  provider: string,
  cluster: string | undefined,
): Promise<void> {
  const body = { name: `setup of ${provider}`, provider, ...(cluster && { cluster }) };
  const { token } = tokenSchema.parse(await call(target, 'POST', '/join-tokens', body));
  say('provider', provider);
  if (await hasRelease(target)) {
    console.log(`\nOn a machine with GPUs:\n  ${installLine(url, token)}`);
    return;
  }
  console.log(`\nJoin token of ${provider}, shown only once:\n  ${token}`);
  console.log('This gateway has no release to install agents from: start it with --release DIRECTORY.');
}

/** True if `/install` answers with a script. */
async function hasRelease({ url }: ApiTarget): Promise<boolean> {
  const response = await fetch(`${url}/install`, { signal: AbortSignal.timeout(INSTALL_MS) }).catch(
    (cause: unknown) => {
      throw new ClientError(`no gateway answers at ${url}`, { cause });
    },
  );
  await response.body?.cancel();
  return response.ok;
}
const INSTALL_MS = 30_000;

function say(what: string, text: string): void {
  console.log(printable(`${what.padEnd(12)}${text}`));
}
