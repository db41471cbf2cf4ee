/** Converts the text of factory.toml to a configuration, or to problems with lines. */
import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { dirname, resolve } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import * as z from 'zod';
import { readBoundedFile } from '../../node/bounded-file.ts';
import { nearestName } from '../../shared/text/nearest-name.ts';
import { errorLine, FactoryError } from '../factory-error.ts';
import { findProblems } from './config-problems.ts';
import { lineOfPath } from './line-of-path.ts';
import { type FactoryConfig, fileSchema } from './schema.ts';

const FILE_MAX_BYTES = 1024 * 1024;
/** Maximum number of reported problems. An operator fixes a few at a time. */
const FAULTS_MAX = 20;

/** A problem of the file, with its line. */
interface ConfigFault {
  line: number;
  text: string;
}

/** @throws FactoryError `config` with one line per problem: `factory.toml:12: …` */
export function readFactoryConfig(path: string): FactoryConfig {
  let text: string;
  try {
    text = readBoundedFile(path, FILE_MAX_BYTES);
  } catch (cause) {
    throw new FactoryError('config', `cannot read ${path}: ${errorLine(cause)}`, { cause });
  }
  const read = parseConfig(text);
  if ('faults' in read)
    throw new FactoryError(
      'config',
      read.faults.map(({ line, text: fault }) => `${path}:${line}: ${fault}`).join('\n'),
    );
  const at = (name: string) =>
    name.startsWith('~/') ? resolve(homedir(), name.slice(2)) : resolve(dirname(path), name);
  const { config } = read;
  return {
    ...config,
    token_file: at(config.token_file),
    state: at(config.state),
    clusters: config.clusters.map((one) => (one.key_file === undefined ? one : { ...one, key_file: at(one.key_file) })),
    ...(config.plan === undefined ? {} : { plan: { ...config.plan, file: at(config.plan.file) } }),
    ...(config.ca_file === undefined ? {} : { ca_file: at(config.ca_file) }),
  };
}

/** Returns at most 20 problems, in the order of lines. Paths stay as written. */
export function parseConfig(text: string): { config: FactoryConfig } | { faults: ConfigFault[] } {
  let value: unknown;
  try {
    value = parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [first = 'not valid TOML'] = error.message.split('\n');
    return { faults: [{ line: error.line, text: first.replace(/^Invalid TOML document: /, '') }] };
  }
  const read = fileSchema.safeParse(value);
  if (!read.success) {
    const faults = read.error.issues.flatMap((issue) => faultsOf(text, issue));
    return { faults: faults.sort((a, b) => a.line - b.line).slice(0, FAULTS_MAX) };
  }
  const { clusters, models, recipes, ...rest } = read.data;
  const config: FactoryConfig = {
    ...rest,
    revision: createHash('sha256').update(text).digest('hex').slice(0, 12),
    clusters: Object.entries(clusters).map(([id, one]) => ({ id, ...one })),
    models: Object.entries(models).map(([id, one]) => ({ id, ...one })),
    recipes: new Map(Object.entries(recipes)),
  };
  const problems = findProblems(config).map(({ path, text: fault }) => ({ line: lineOfPath(text, path), text: fault }));
  return problems.length === 0 ? { config } : { faults: problems.slice(0, FAULTS_MAX) };
}

function faultsOf(text: string, issue: z.core.$ZodIssue): ConfigFault[] {
  const where = issue.path.map(String).join('.');
  if (issue.code !== 'unrecognized_keys')
    return [{ line: lineOfPath(text, issue.path), text: `${where === '' ? '' : `${where}: `}${issue.message}` }];
  const known = keysAt(issue.path);
  return issue.keys.map((key) => {
    const meant = nearestName(key, known);
    const help = meant === undefined ? `the keys are ${known.join(', ')}` : `did you mean ${meant}?`;
    return {
      line: lineOfPath(text, [...issue.path, key]),
      text: `${where === '' ? '' : `${where}: `}unknown key ${key}; ${help}`,
    };
  });
}

/** Returns the allowed keys at a path of the file. */
function keysAt(path: readonly PropertyKey[]): string[] {
  let at: z.core.JSONSchema.BaseSchema = z.toJSONSchema(fileSchema, { io: 'input' });
  for (const part of path) at = below(at, String(part));
  return Object.keys(at.properties ?? {});
}

function below(at: z.core.JSONSchema.BaseSchema, key: string): z.core.JSONSchema.BaseSchema {
  const items = Array.isArray(at.items) ? at.items[0] : at.items;
  for (const next of [at.properties?.[key], at.additionalProperties, items]) if (typeof next === 'object') return next;
  return {};
}
