import { totalmem } from 'node:os';
import { UsageError } from '../../shared/command-line/index.ts';
import type { FunctionLimits } from '../batch/functions/function-process.ts';
import { parseDuration } from './duration.ts';
import { listSetting, plainText, type SettingReader, valueSetting, wholeNumber } from './setting.ts';

/** Settings for users' functions on this node. */
export interface FunctionsConfig {
  /** Owners whose functions may run: `project:ID`, `user:ID` or `key:ID`. Undefined: all owners. */
  owners: string[] | undefined;
  loadedMax: number;
  limits: FunctionLimits;
}

const OWNERS_MAX = 64;
const LOADED_MAX = 64;
const MEMORY_MAX_MIB = 1_000_000;
const OWNER = /^(?:(?:project|user|key):)?[A-Za-z0-9_-]{1,64}$/;

export const FUNCTION_SETTINGS = {
  owners: listSetting({
    flag: 'allow-functions',
    env: 'OTELA_ALLOW_FUNCTIONS',
    value: 'PROJECT',
    help: 'projects that may run Python functions here, as lines of batches with all rights of this user; all: every project',
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
    help: 'maximum functions that are loaded at a time',
    default: '1',
    parse: (text) => wholeNumber('functions-loaded', text, LOADED_MAX),
  }),
  memoryBytes: valueSetting({
    flag: 'functions-memory',
    env: 'OTELA_FUNCTIONS_MEMORY',
    value: 'MIB',
    help: 'maximum resident memory of one function and its child processes',
    otherwise: 'half of the memory of this machine',
    parse: (text) => wholeNumber('functions-memory', text, MEMORY_MAX_MIB) * 2 ** 20,
    unset: () => totalmem() / 2,
  }),
  callMs: valueSetting({
    flag: 'functions-timeout',
    env: 'OTELA_FUNCTIONS_TIMEOUT',
    value: 'DURATION',
    help: 'maximum duration of load() and of each call of a function',
    default: '15m',
    parse: parseTimeout,
  }),
};

/** Undefined if no function may run here. @throws UsageError */
export function functionsConfig(reader: SettingReader): FunctionsConfig | undefined {
  const { owners: allowed, ...details } = FUNCTION_SETTINGS;
  if (!reader.has(allowed)) {
    if (!reader.has(...Object.values(details))) return undefined;
    throw new UsageError('--functions-… has no effect without --allow-functions');
  }
  const { owners, python, loadedMax, memoryBytes, callMs } = reader.read(FUNCTION_SETTINGS);
  return { owners, loadedMax, limits: { python, loadMs: callMs, callMs, memoryBytes } };
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
