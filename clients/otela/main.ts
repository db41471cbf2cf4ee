#!/usr/bin/env node
import { accessSync, constants } from 'node:fs';
import { resolve } from 'node:path';
import project from '../../package.json' with { type: 'json' };
import {
  type Command,
  EXIT_DONE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  type Flags,
  JSON_FLAG,
  type Program,
  parseLine,
  runProgram,
  UsageError,
} from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
/**
 * `otela`, the program for users who call models. `otela seal` is an OpenAI endpoint on this machine that seals its
 * requests.
 */
import { neverRejects } from '../../shared/timing/in-background.ts';
import { DOWN_COMMAND } from '../../up/cli/down-command.ts';
import { LOGS_COMMAND } from '../../up/cli/logs-command.ts';
import { LS_COMMAND } from '../../up/cli/ls-command.ts';
import { SHARE_COMMAND } from '../../up/cli/share-command.ts';
import { UP_COMMAND } from '../../up/cli/up-command.ts';
import { UpError } from '../../up/up-error.ts';
import { canaryCommand, EXIT_DIFFERS } from './canary-command.ts';
import { chatCommand } from './chat-command.ts';
import { UnreachableError } from './fetch-or-explain.ts';
import { gatewayAccess, gatewayUrl, readKey, rememberGateway, requirePrivate } from './gateway-access.ts';
import { configureTool, launchTool, restoreTool, toolOf } from './launch/launch-command.ts';
import { TOOLS } from './launch/tools.ts';
import { keyFile, loginCommand } from './login-command.ts';
import { modelsCommand } from './models-command.ts';
import { cancelRun, listRuns, logsOfRun, retryRun, watchRun } from './runs-command.ts';
import { sealCommand } from './seal-command.ts';
import { deleteSecret, listSecrets, setSecret } from './secrets-command.ts';
import { usageCommand } from './usage-command.ts';
import { VerifierCommand } from './verifier-command.ts';

const PORT_DEFAULT = '8199';
/** Words of a question without quotes; a longer one goes to stdin. */
const QUESTION_WORDS_MAX = 1_000;

const FLAGS = {
  gateway: { value: 'URL', help: 'URL of the gateway' },
  pin: { value: 'PROVIDER=KEY', repeat: true, help: 'root key of a provider, from otela-agent vouch' },
  aliases: { help: 'trust the aliases of models that the gateway reports' },
  verifier: {
    value: 'FILE',
    help: 'program that checks the evidence of a node; only nodes that it accepts receive requests',
  },
  port: { value: 'PORT', default: PORT_DEFAULT, help: 'port to listen on, on 127.0.0.1' },
} as const satisfies Flags;

const SEAL: Command<Output> = {
  summary: 'serve an OpenAI endpoint on this machine that encrypts requests end to end',
  examples: `--gateway URL [--pin PROVIDER=KEY]… [--port 8199]

For curl, and for tools whose fetch function you cannot replace. It encrypts each request to nodes of the pinned providers, sends it to the
gateway, and decrypts the response. Without --pin, it trusts the node keys from the gateway: this protects against a gateway that reads
requests, but not against a gateway that returns false keys. A --verifier reads JSON from stdin and exits with 0 to accept a machine. Your
API key for the gateway is sent as usual.
  otela seal --gateway https://gw.example.org --pin eth=6r2MeC42FZ8n4x8wn3o5fqa_g3zicQ-wbql-CSdWzkM`,
  flags: FLAGS,
  run: async (args, out) => {
    const { values } = parseLine(args, FLAGS);
    if (values.gateway === undefined) throw new UsageError('a gateway is missing: give --gateway URL');
    const gateway = gatewayUrl(values.gateway);
    const [pins, port, verifier] = [pinsOf(values.pin ?? []), portOf(values.port), verifierOf(values.verifier, out)];
    await sealCommand({ gateway, pins, port, aliases: values.aliases, verifier }, out);
    return EXIT_DONE;
  },
};

const CANARY_FLAGS = {
  gateway: FLAGS.gateway,
  pin: FLAGS.pin,
  model: { value: 'MODEL', help: 'model to test, on each of its nodes' },
  times: { value: 'N', default: '3', help: 'prompts per node, 1 to 100' },
} as const satisfies Flags;

const CANARY: Command<Output> = {
  summary: 'check the token counts of a gateway with known encrypted prompts',
  examples: `--gateway URL --model MODEL [--pin PROVIDER=KEY]… [--times N]

Sends known prompts to each node of a model. It compares the token counts in the encrypted responses with each other, and with the usage
that the gateway recorded for the key in OTELA_API_KEY. Do not use this key for other requests meanwhile. Exit code 1 if they differ.
  OTELA_API_KEY=sk-… otela canary --gateway https://gw.example.org --model org/name --pin eth=6r2MeC42FZ8n4x8wn3o5fqa_g3zicQ-wbql-CSdWzkM`,
  flags: CANARY_FLAGS,
  run: async (args, out) => {
    const { values } = parseLine(args, CANARY_FLAGS);
    const { OTELA_API_KEY, OTELA_KEY } = process.env;
    const key = OTELA_API_KEY || OTELA_KEY; // The second is its earlier name.
    if (values.gateway === undefined || values.model === undefined)
      throw new UsageError('the gateway or the model is missing: give --gateway URL --model MODEL');
    if (!key)
      throw new UsageError('set OTELA_API_KEY to a key of the gateway; on the command line other users could see it');
    const times = Number(values.times);
    if (!Number.isInteger(times) || times < 1 || times > 100) throw new UsageError('--times must be from 1 to 100');
    const { model } = values;
    const pins = pinsOf(values.pin ?? []);
    return await canaryCommand({ gateway: gatewayUrl(values.gateway), pins, key, model, times }, out);
  },
};

const LOGIN_FLAGS = {
  gateway: FLAGS.gateway,
  'key-file': { value: 'FILE', help: 'file to write the key to; default: ~/.config/otela/key' },
  insecure: { help: 'allow http:// to another machine; the network between can then read the key' },
} as const satisfies Flags;

const LOGIN: Command<Output> = {
  summary: 'get an API key for this machine; you approve it in a browser',
  examples: `--gateway URL [--key-file FILE]

Prints a code. Log in to the dashboard of the gateway and enter the code, but only if you started this login. The key expires after 30 days.
  otela login --gateway https://gw.example.org`,
  flags: LOGIN_FLAGS,
  run: async (args, out) => {
    const { values } = parseLine(args, LOGIN_FLAGS);
    if (values.gateway === undefined) throw new UsageError('a gateway is missing: give --gateway URL');
    const gateway = gatewayUrl(values.gateway);
    if (!values.insecure) requirePrivate(gateway);
    await loginCommand({ gateway, file: keyFile(values['key-file']) }, out);
    if (values['key-file'] === undefined) rememberGateway(gateway);
    return EXIT_DONE;
  },
};

const ACCESS_FLAGS = {
  gateway: { value: 'URL', help: 'URL of the gateway; default: OTELA_GATEWAY, then that of the last otela login' },
  'key-file': {
    value: 'FILE',
    takes: 'file',
    help: 'file with the key; default: OTELA_API_KEY, then the file of otela login',
  },
} as const satisfies Flags;
const READ_FLAGS = { ...ACCESS_FLAGS, ...JSON_FLAG } as const satisfies Flags;

const MODELS: Command<Output> = {
  summary: 'list the models that your key may use',
  examples: `[--gateway URL] [--json]

One line per model: its name, its state, its context.
  otela models`,
  flags: READ_FLAGS,
  run: async (args, out) => {
    const { values } = parseLine(args, READ_FLAGS);
    await modelsCommand(gatewayAccess(values), values.json, out);
    return EXIT_DONE;
  },
};

const CHAT_FLAGS = {
  ...ACCESS_FLAGS,
  model: { value: 'MODEL', help: 'model to use; required if your key may use several' },
  system: { value: 'TEXT', help: 'system prompt' },
} as const satisfies Flags;

const CHAT: Command<Output> = {
  summary: 'ask a model, or talk with it, in the terminal',
  examples: `[QUESTION …] [--model MODEL] [--system TEXT] [--gateway URL]

Prints the answer as it arrives. Text on stdin follows the question. Without a question it is a conversation, until Ctrl-D.
  otela chat 'Explain fair share on Slurm'
  otela chat 'Why did this job fail?' < slurm-4711.out
  otela chat --model Qwen/Qwen3-8B`,
  flags: CHAT_FLAGS,
  run: async (args, out) => {
    const { values, words } = parseLine(args, CHAT_FLAGS, { words: QUESTION_WORDS_MAX });
    const { model, system } = values;
    await chatCommand(
      gatewayAccess(values),
      { model, system, question: words.join(' ').trim() },
      {
        input: process.stdin,
        write: (text) => void process.stdout.write(text),
        complain: out.complain,
        open: async () => {
          // Imported here, because Node 16 lacks it, and could not say that it is too old.
          const { createInterface } = await import('node:readline/promises');
          return createInterface({ input: process.stdin, output: process.stderr });
        },
      },
    );
    return EXIT_DONE;
  },
};

const USAGE: Command<Output> = {
  summary: 'show your usage of the last day, and the rest of your limits',
  examples: `[--gateway URL] [--json]

  otela usage`,
  flags: READ_FLAGS,
  run: async (args, out) => {
    const { values } = parseLine(args, READ_FLAGS);
    await usageCommand(gatewayAccess(values), values.json, out);
    return EXIT_DONE;
  },
};

const TOKEN_FLAGS = { 'key-file': ACCESS_FLAGS['key-file'] } as const satisfies Flags;

const TOKEN: Command<Output> = {
  summary: 'print your key, for programs that ask a command for it',
  examples: `[--key-file FILE]

Prints only the key, for example for the setting apiKeyHelper of Claude Code. It does not ask the gateway.
  curl -H "Authorization: Bearer $(otela token)" https://gw.example.org/v1/models`,
  flags: TOKEN_FLAGS,
  run: (args, out) => {
    const { values } = parseLine(args, TOKEN_FLAGS);
    out.print(readKey(values['key-file']).key);
    return EXIT_DONE;
  },
};

const LAUNCH_FLAGS = {
  ...ACCESS_FLAGS,
  model: { value: 'MODEL', help: 'model to use; required if your key may use several' },
  config: { help: 'write the configuration of the tool, and do not run it' },
  restore: { help: 'restore the configuration from before --config' },
  arguments: { value: 'ARG …', rest: true, help: 'arguments for the tool; the same as after --' },
} as const satisfies Flags;

const LAUNCH: Command<Output> = {
  summary: 'run a coding tool with the models of a gateway',
  examples: `TOOL [--model MODEL] [--gateway URL] [-- ARG …]
  otela launch TOOL --config [--model MODEL]
  otela launch TOOL --restore

Tools: ${Object.keys(TOOLS).join(', ')}. Others: docs/clients.md.
Sets address, key, model and context in the environment of the tool for this run, and changes no file. With --config it writes them into the
file of the tool (${Object.keys(TOOLS)
    .filter((name) => TOOLS[name]?.file !== undefined)
    .join(', ')}), without the key: the tool asks otela token, or reads the file of otela login. --restore undoes that.
  otela launch claude --model Qwen/Qwen3-Coder-30B-A3B-Instruct
  otela launch codex -- exec 'Explain this repository'`,
  takes: Object.keys(TOOLS),
  flags: LAUNCH_FLAGS,
  run: async (args, out) => {
    const { values, words, command = [] } = parseLine(args, LAUNCH_FLAGS, { words: 1 });
    const [name = ''] = words;
    toolOf(words[0]);
    if (values.config && values.restore) throw new UsageError('give either --config or --restore');
    if ((values.config || values.restore) && command.length > 0)
      throw new UsageError('arguments for the tool need a run, without --config and --restore');
    if (values.restore) restoreTool(name, out);
    else if (values.config) await configureTool(gatewayAccess(values), { name, model: values.model, args: [] }, out);
    else return launchTool(gatewayAccess(values), { name, model: values.model, args: command });
    return EXIT_DONE;
  },
};

const RUNS: Command<Output> = {
  summary: 'list, watch, retry and cancel the runs of your Python functions',
  examples: `[list|watch RUN|logs RUN|retry RUN|cancel RUN] [--gateway URL] [--json]

A script prints the RUN of client.map() as run.id. watch prints progress until the run has ended; exit code 1 if calls failed or
did not run. logs prints the last output of the calls, and why calls failed. retry sends the failed calls again; then the same script
finds their results.
  otela runs
  otela runs watch run-5f0d8a2c41b7e963`,
  takes: ['list', 'watch', 'logs', 'retry', 'cancel'],
  flags: READ_FLAGS,
  run: async (args, out) => {
    const { values, words } = parseLine(args, READ_FLAGS, { words: 2 });
    const [verb = 'list', id] = words;
    const access = gatewayAccess(values);
    if (values.json && verb !== 'list') throw new UsageError('--json belongs to otela runs list');
    switch (verb) {
      case 'list':
        await listRuns(access, values.json, out);
        return EXIT_DONE;
      case 'watch':
        return (await watchRun(access, id, out)) ? EXIT_DONE : EXIT_DIFFERS;
      case 'logs':
        await logsOfRun(access, id, out);
        return EXIT_DONE;
      case 'retry':
        await retryRun(access, id, out);
        return EXIT_DONE;
      case 'cancel':
        await cancelRun(access, id, out);
        return EXIT_DONE;
      default:
        throw new UsageError(`"${verb}" is not one of list, watch, logs, retry, cancel`);
    }
  },
};

const SECRETS: Command<Output> = {
  summary: 'store secrets, such as a token of Hugging Face, for your Python functions',
  examples: `[list|set NAME|delete NAME] [--gateway URL] [--json]

set reads the value from stdin. The gateway stores it encrypted and shows it to nobody. Nodes get it with the lines of functions of the same
project that declare secrets=["NAME"], and only the processes of these functions have it.
  otela secrets set HF_TOKEN < ~/.cache/huggingface/token
  otela secrets`,
  takes: ['list', 'set', 'delete'],
  flags: READ_FLAGS,
  run: async (args, out) => {
    const { values, words } = parseLine(args, READ_FLAGS, { words: 2 });
    const [verb = 'list', name] = words;
    const access = gatewayAccess(values);
    if (values.json && verb !== 'list') throw new UsageError('--json belongs to otela secrets list');
    if (verb === 'list') await listSecrets(access, values.json, out);
    else if (verb === 'set') await setSecret(access, name, out);
    else if (verb === 'delete') await deleteSecret(access, name, out);
    else throw new UsageError(`"${verb}" is not one of list, set, delete`);
    return EXIT_DONE;
  },
};

export const OTELA_PROGRAM: Program<Output> = {
  name: 'otela',
  version: project.version,
  about: 'otela is for users of models: behind OpenTela gateways, or served by otela up on their own cluster.',
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_DIFFERS} a canary found a difference or calls of a watched run failed, ${EXIT_USAGE} wrong usage, ${EXIT_UNAVAILABLE} the gateway or the cluster cannot be used.`,
  commands: {
    up: UP_COMMAND,
    ls: LS_COMMAND,
    logs: LOGS_COMMAND,
    share: SHARE_COMMAND,
    down: DOWN_COMMAND,
    login: LOGIN,
    models: MODELS,
    chat: CHAT,
    usage: USAGE,
    token: TOKEN,
    launch: LAUNCH,
    runs: RUNS,
    secrets: SECRETS,
    seal: SEAL,
    canary: CANARY,
  },
};

/**
 * @param argv the arguments after the program's name. Resolves with the exit code. A server keeps the process alive.
 */
export function main(argv: readonly string[], out: Output): Promise<number> {
  return runProgram(OTELA_PROGRAM, argv, out, {
    out: out.print,
    complain: out.complain,
    exitOf: (error) => (error instanceof UnreachableError || error instanceof UpError ? EXIT_UNAVAILABLE : EXIT_USAGE),
    failed: EXIT_USAGE,
  });
}

function pinsOf(given: readonly string[]): Record<string, string> | undefined {
  if (given.length === 0) return undefined;
  return Object.fromEntries(
    given.map((text) => {
      const [, provider, key] = /^([a-z0-9][a-z0-9@-]{0,126})=([A-Za-z0-9_-]{43})$/.exec(text) ?? [];
      if (provider === undefined || key === undefined)
        throw new UsageError(`--pin: "${text}" is not PROVIDER=KEY as otela-agent vouch prints it`);
      return [provider, key];
    }),
  );
}

function verifierOf(file: string | undefined, { print }: Output): VerifierCommand | undefined {
  if (file === undefined) return undefined;
  try {
    accessSync(file, constants.X_OK);
  } catch {
    throw new UsageError(`--verifier: "${file}" is not an executable program`);
  }
  return new VerifierCommand({ file: resolve(file), print });
}

function portOf(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new UsageError(`--port: "${text}" is not a port`);
  return port;
}

async function run(): Promise<void> {
  process.exitCode = await main(process.argv.slice(2), { print: console.log, complain: console.error });
}

if (import.meta.main) neverRejects(run());
