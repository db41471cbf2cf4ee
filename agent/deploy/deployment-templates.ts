/**
 * The commands that may be deployed on this node: the operator's templates DIR/NAME.json, which are read once when the
 * agent starts. An operator of a gateway chooses a template and sets its parameters. The network never sends a command.
 */
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { DEPLOYMENT_ANSWER_MAX_BYTES, OFFERS_MAX, type TemplateOffer } from '../../shared/deployment/order-reply.ts';
import {
  bindParameters,
  type Parameters,
  parameterSpecsSchema,
  TEMPLATE_NAME_PATTERN,
} from '../../shared/deployment/template-parameters.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { parseSource, sourceText } from '../../shared/weights/weights-source.ts';

const FILE_MAX_BYTES = 64 * 1024;
const ARGUMENTS_MAX = 256;
/** Maximum size of the descriptions of all templates, which are sent in one frame. */
const OFFERS_MAX_BYTES = DEPLOYMENT_ANSWER_MAX_BYTES - 8 * 1024;

/** Name of the parameter for the engine's port. The agent chooses a free port unless the template sets one. */
const PORT = 'port';
/** Placeholder for the directory of the copied weights, which is known only when they are on this node. */
const WEIGHTS = 'weights';
const WEIGHTS_SOURCE_CHARS_MAX = 4096;
const PLACEHOLDER = /\{\{\s*([^{}]*?)\s*\}\}/g;

/** Default time until an engine must be ready. Loading a model of 400 GB from a busy file system takes half an hour. */
const READY_WITHIN_S = 3600;

const templateSchema = z.strictObject({
  about: z.string().max(1024).optional(),
  argv: z
    .array(z.string().max(4096))
    .min(1)
    .max(ARGUMENTS_MAX)
    .refine(([file = '']) => file.trim() !== '', 'the command is empty')
    .refine(([file = '']) => !file.includes('{{'), 'the program itself cannot be a parameter'),
  parameters: parameterSpecsSchema.default({}),
  /**
   * Weights that are copied to this node before the engine starts: from a node of the cluster that has them, otherwise
   * from this source. May contain parameters.
   */
  weights: z.string().min(1).max(WEIGHTS_SOURCE_CHARS_MAX).optional(),
  /** The engine's port. Absent: `{{port}}` is a free port. */
  port: z.number().int().min(1).max(65_535).optional(),
  /** An engine that serves nothing after this many seconds has failed. */
  ready_within_s: z.number().int().min(1).max(86_400).default(READY_WITHIN_S),
});

interface Template extends z.infer<typeof templateSchema> {
  name: string;
}

/** A command that is ready to run, with its environment. */
export interface EngineLaunch {
  argv: string[];
  /** The source of the weights. Their directory replaces `{{weights}}` in `argv`. */
  weights?: string;
  port: number;
  readyWithinMs: number;
}

export class Templates {
  readonly #templates: ReadonlyMap<string, Template>;

  /** @throws Error with a message for the operator */
  constructor(templates: readonly Template[]) {
    this.#templates = new Map(templates.map((template) => [template.name, template]));
    const bytes = Buffer.byteLength(JSON.stringify(this.offers));
    if (bytes > OFFERS_MAX_BYTES)
      throw new Error(
        `the names and values that the templates allow have ${bytes} bytes together; at most ${OFFERS_MAX_BYTES} are allowed`,
      );
  }

  get names(): string[] {
    return [...this.#templates.keys()];
  }

  get offers(): TemplateOffer[] {
    return [...this.#templates.values()].map(({ name, parameters }) => ({ template: name, parameters }));
  }

  /** Name of a template that copies weights to this node, if there is one. */
  get copying(): string | undefined {
    return [...this.#templates.values()].find(({ weights }) => weights !== undefined)?.name;
  }

  /** @throws DeploymentError unknown_template */
  find(name: string): Template {
    const template = this.#templates.get(name);
    if (template !== undefined) return template;
    throw new DeploymentError(
      'unknown_template',
      `there is no template ${name} here (there are: ${this.names.join(', ')})`,
    );
  }
}

/** @throws DeploymentError bad_parameters */
export function bindTemplate(template: Template, given: Parameters, port: number): EngineLaunch {
  const values: Record<string, string> = { ...bindParameters(template.parameters, given), [PORT]: String(port) };
  // All placeholders were checked against the parameters' names when the template was read.
  const bound = (text: string) => text.replace(PLACEHOLDER, (_, name: string) => values[name] ?? '');
  const readyWithinMs = template.ready_within_s * 1000;
  if (template.weights === undefined) return { argv: template.argv.map(bound), port, readyWithinMs };
  // Remains until the copy is complete.
  values[WEIGHTS] = `{{${WEIGHTS}}}`;
  const weights = bound(template.weights);
  const source = parseSource(weights);
  if (source === undefined) throw new DeploymentError('bad_parameters', `${weights} names no weights`);
  return { argv: template.argv.map(bound), weights: sourceText(source), port, readyWithinMs };
}

/** @throws Error with a message for the operator */
export function readTemplates(directory: string): Templates {
  const mine = (what: string, { uid, mode }: { uid: number; mode: number }) => {
    // A user who may write this file could run any command as this user.
    if (uid !== process.getuid?.() && uid !== 0) throw new Error(`${what} belongs to another user`);
    if ((mode & 0o022) !== 0) throw new Error(`other users can write ${what}: chmod go-w`);
  };
  const stat = statSync(directory);
  if (!stat.isDirectory()) throw new Error(`${directory} is not a directory`);
  mine(directory, stat);
  const files = readdirSync(directory)
    .filter((name) => name.endsWith('.json') && !name.startsWith('.'))
    .sort();
  if (files.length === 0) throw new Error(`${directory} contains no template (NAME.json)`);
  if (files.length > OFFERS_MAX)
    throw new Error(`${directory} contains ${files.length} templates; at most ${OFFERS_MAX} are allowed`);
  return new Templates(files.map((name) => readTemplate(join(directory, name), name.slice(0, -'.json'.length), mine)));
}

function readTemplate(
  path: string,
  name: string,
  check: (what: string, stat: { uid: number; mode: number }) => void,
): Template {
  if (!TEMPLATE_NAME_PATTERN.test(name))
    throw new Error(`${path}: the name of a template consists of lower-case letters, digits and . _ -`);
  const text = readSmall(path, check);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`${path} is not JSON: ${errorText(cause)}`, { cause });
  }
  return templateFrom(path, name, value);
}

/** Checks and reads the opened file, because the path may point to another file a moment later. */
function readSmall(path: string, check: (what: string, stat: { uid: number; mode: number }) => void): string {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(file);
    if (!stat.isFile()) throw new Error(`${path} is not a file`);
    check(path, stat);
    if (stat.size > FILE_MAX_BYTES)
      throw new Error(`${path} has ${stat.size} bytes; at most ${FILE_MAX_BYTES} are allowed`);
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/** @throws Error with a message for the operator */
export function templateFrom(what: string, name: string, value: unknown): Template {
  const read = templateSchema.safeParse(value);
  if (!read.success) throw new Error(`${what}: ${z.prettifyError(read.error)}`);
  const template = { ...read.data, name };
  if (Object.hasOwn(template.parameters, PORT))
    throw new Error(`${what}: ${PORT} cannot be a parameter, because the agent sets it`);
  const copies = template.weights !== undefined;
  if (copies && Object.hasOwn(template.parameters, WEIGHTS))
    throw new Error(`${what}: ${WEIGHTS} cannot be a parameter beside "weights", because the agent sets it`);
  const parameters = Object.keys(template.parameters);
  const used = placeholdersIn(template.argv);
  const named = placeholdersIn(template.weights === undefined ? [] : [template.weights]);
  checkPlaceholders(what, 'argv', used, [...parameters, PORT, ...(copies ? [WEIGHTS] : [])]);
  checkPlaceholders(what, '"weights"', named, parameters);
  for (const one of parameters)
    if (!used.has(one) && !named.has(one)) throw new Error(`${what}: argv does not use the parameter ${one}`);
  if (template.port === undefined && !used.has(PORT))
    throw new Error(`${what}: the engine needs a port: add {{${PORT}}} to argv, or set "port"`);
  return template;
}

const placeholdersIn = (texts: readonly string[]): Set<string> =>
  new Set(texts.flatMap((text) => [...text.matchAll(PLACEHOLDER)].map(([, one = '']) => one)));

function checkPlaceholders(what: string, where: string, used: ReadonlySet<string>, known: readonly string[]): void {
  for (const one of used)
    if (!known.includes(one))
      throw new Error(
        `${what}: ${where} contains the unknown placeholder {{${one}}}; the known ones are ${known.join(', ')}`,
      );
}
