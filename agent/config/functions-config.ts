import { totalmem } from 'node:os';
import { UsageError } from '../../shared/command-line/index.ts';
import type { FunctionLimits } from '../batch/functions/process.ts';
import { parseDuration } from './duration.ts';

/** Users' functions on this node. */
export interface FunctionsConfig {
  /** Owners of files, by their names at gateways; undefined: all. */
  owners: string[] | undefined;
  loadedMax: number;
  limits: FunctionLimits;
}

const CALL_MS = 900_000;
const OWNERS_MAX = 64;
const LOADED_MAX = 64;
const OWNER = /^(?:(?:project|user|key):)?[A-Za-z0-9_-]{1,64}$/;

interface Given {
  allow: readonly string[];
  python: string | undefined;
  loaded: string | undefined;
  memory: string | undefined;
  timeout: string | undefined;
}

/** Undefined: no function runs here. @throws UsageError */
export function functionsConfig(given: Given): FunctionsConfig | undefined {
  if (given.allow.length === 0) {
    if ([given.python, given.loaded, given.memory, given.timeout].every((one) => one === undefined)) return undefined;
    throw new UsageError('--functions-… is of no use without --allow-functions');
  }
  const callMs = given.timeout === undefined ? CALL_MS : parseDuration(given.timeout, '--functions-timeout');
  if (callMs <= 0) throw new UsageError('--functions-timeout must be more than 0');
  return {
    owners: owners(given.allow),
    loadedMax: whole('functions-loaded', given.loaded ?? '1', LOADED_MAX),
    limits: {
      python: given.python ?? 'python3',
      loadMs: callMs,
      callMs,
      memoryBytes:
        given.memory === undefined ? totalmem() / 2 : whole('functions-memory', given.memory, 1_000_000) * 2 ** 20,
    },
  };
}

function owners(texts: readonly string[]): string[] | undefined {
  if (texts.includes('all')) return undefined;
  if (texts.length > OWNERS_MAX) throw new UsageError(`--allow-functions: at most ${OWNERS_MAX} projects`);
  return texts.map((text) => {
    if (!OWNER.test(text))
      throw new UsageError(`--allow-functions: "${text}" is not a project's id, user:ID, key:ID or the word all`);
    return text.includes(':') ? text : `project:${text}`;
  });
}

function whole(name: string, text: string, most: number): number {
  const value = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 1 && value <= most) return value;
  throw new UsageError(`${name}: "${text}" is not a number from 1 to ${most}`);
}
