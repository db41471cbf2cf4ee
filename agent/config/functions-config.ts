import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import type { FunctionLimits } from '../batch/functions/function-process.ts';
import { usableMemoryMib } from '../host/usable-memory.ts';
import { parseDuration } from './duration.ts';
import { TOKEN_SETTINGS } from './gateways-config.ts';
import {
  type Env,
  listSetting,
  plainText,
  type SettingReader,
  switchSetting,
  valueSetting,
  wholeNumber,
} from './setting.ts';

/** Settings for users' functions on this node. */
export interface FunctionsConfig {
  /** Owners whose functions may run: `project:ID`, `user:ID` or `key:ID`. Undefined: all owners. */
  owners: string[] | undefined;
  /** Undefined: one for each GPU; without GPUs, one. */
  loadedMax: number | undefined;
  limits: FunctionLimits;
  sandbox: (typeof SANDBOX)[number];
  /** True if functions may use the network. */
  network: boolean;
  /** Directory for packages that functions declare. */
  packages: string;
  /** Files with secrets of this agent. */
  secretFiles: string[];
}

const SANDBOX = ['auto', 'required', 'off'] as const;

const OWNERS_MAX = 64;
const LOADED_MAX = 64;
const MEMORY_MAX_MIB = 1_000_000;
const MIB = 2 ** 20;
const OWNER = /^(?:(?:project|user|key):)?[A-Za-z0-9_-]{1,64}$/;

export const FUNCTION_SETTINGS = {
  owners: listSetting({
    flag: 'allow-functions',
    env: 'OTELA_ALLOW_FUNCTIONS',
    value: 'PROJECT',
    help: 'projects that may run Python functions here, as lines of batches; all: every project',
    otherwise: 'none',
    parse: parseOwners,
  }),
  python: valueSetting({
    flag: 'functions-python',
    env: 'OTELA_FUNCTIONS_PYTHON',
    value: 'FILE',
    help: 'Python interpreter for functions, for example VENV/bin/python',
    default: 'python3',
    parse: plainText,
  }),
  loadedMax: valueSetting({
    flag: 'functions-loaded',
    env: 'OTELA_FUNCTIONS_LOADED',
    value: 'N',
    help: 'maximum processes of functions that are loaded at a time',
    otherwise: 'one for each GPU; without GPUs, one',
    parse: (text) => wholeNumber('functions-loaded', text, LOADED_MAX),
  }),
  memoryBytes: valueSetting({
    flag: 'functions-memory',
    env: 'OTELA_FUNCTIONS_MEMORY',
    value: 'MIB',
    help: 'maximum resident memory of one function and its child processes',
    otherwise: 'half of the memory that the job may use',
    // Above the job's memory the kernel would end the agent or the engine before the limit ends the function.
    parse: (text, { env }) => Math.min(wholeNumber('functions-memory', text, MEMORY_MAX_MIB) * MIB, usableBytes(env)),
    unset: ({ env }) => usableBytes(env) / 2,
  }),
  callMs: valueSetting({
    flag: 'functions-timeout',
    env: 'OTELA_FUNCTIONS_TIMEOUT',
    value: 'DURATION',
    help: 'maximum duration of load() and of each call of a function',
    default: '15m',
    parse: parseTimeout,
  }),
  sandbox: valueSetting({
    flag: 'functions-sandbox',
    env: 'OTELA_FUNCTIONS_SANDBOX',
    value: 'WHEN',
    help: 'hide the home directory, the state of this agent and other processes from functions. auto: if the kernel allows it; required: no function runs without it; off: never',
    default: 'auto',
    parse: parseSandbox,
  }),
  network: switchSetting({
    flag: 'functions-network',
    env: 'OTELA_FUNCTIONS_NETWORK',
    help: 'let functions in the sandbox use the network',
  }),
  packages: valueSetting({
    flag: 'functions-packages',
    env: 'OTELA_FUNCTIONS_PACKAGES',
    value: 'DIR',
    help: 'directory for Python packages that functions declare; several nodes may share it',
    otherwise: '$XDG_CACHE_HOME/opentela/packages, or ~/.cache/opentela/packages',
    parse: plainText,
    unset: ({ env }) => join(env.XDG_CACHE_HOME ?? join(env.HOME ?? tmpdir(), '.cache'), 'opentela/packages'),
  }),
};

/** Undefined if no function may run here. @throws UsageError */
export function functionsConfig(reader: SettingReader): FunctionsConfig | undefined {
  const { owners: allowed, ...details } = FUNCTION_SETTINGS;
  if (!reader.has(allowed)) {
    if (!reader.has(...Object.values(details))) return undefined;
    throw new UsageError('--functions-… has no effect without --allow-functions');
  }
  const { owners, python, loadedMax, memoryBytes, callMs, ...more } = reader.read(FUNCTION_SETTINGS);
  const { tokenFile } = reader.read({ tokenFile: TOKEN_SETTINGS.tokenFile });
  const secretFiles = tokenFile === undefined ? [] : [resolve(tokenFile.text)];
  return { owners, loadedMax, limits: { python, loadMs: callMs, callMs, memoryBytes }, secretFiles, ...more };
}

const usableBytes = (env: Env) => usableMemoryMib(env) * MIB;

function parseSandbox(text: string): FunctionsConfig['sandbox'] {
  const found = SANDBOX.find((one) => one === text);
  if (found === undefined) throw new UsageError(`--functions-sandbox must be one of ${SANDBOX.join(', ')}`);
  return found;
}

function parseTimeout(text: string): number {
  const ms = parseDuration(text, '--functions-timeout');
  if (ms <= 0) throw new UsageError('--functions-timeout must be more than 0');
  return ms;
}

/** Returns owners as `project:ID`, `user:ID` or `key:ID`. Undefined: all owners. */
function parseOwners(texts: readonly string[]): string[] | undefined {
  if (texts.includes('all')) return undefined;
  if (texts.length > OWNERS_MAX) throw new UsageError(`--allow-functions: at most ${OWNERS_MAX} projects are allowed`);
  return texts.map((text) => {
    if (!OWNER.test(text))
      throw new UsageError(`--allow-functions: "${text}" is not a project's id, user:ID, key:ID or the word all`);
    return text.includes(':') ? text : `project:${text}`;
  });
}
