/** Writes a tool's configuration for `otela launch TOOL --config`, and restores it. */
import { chmodSync, mkdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../../node/private-file.ts';
import { UsageError } from '../../../shared/command-line/index.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { keyFile } from '../login-command.ts';
import { type Member, OWN_MARK } from './tools.ts';

/** Largest configuration of a tool that is changed. */
const CONFIG_MAX_BYTES = 4 * 1024 * 1024;

const savedSchema = z.object({
  file: z.string(),
  /** Previous values of the changed members; a member without `before` was absent. */
  members: z.array(z.object({ path: z.array(z.string()).min(1), before: z.unknown().optional() })),
  /** True if the file did not exist, or belongs to `otela`. */
  created: z.boolean(),
});
type Saved = z.infer<typeof savedSchema>;
type JsonObject = Record<string, unknown>;

/** What `--restore` needs: one file per tool, beside the key. */
const savedFile = (tool: string) => join(dirname(keyFile(undefined)), 'launch', `${tool}.json`);

function readText(path: string): string | undefined {
  try {
    if (statSync(path).size > CONFIG_MAX_BYTES) throw new UsageError(`${path} is too large to be changed`);
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A file that is a link, for example into a repository of dotfiles, stays one. Its mode stays, too. */
function replaceText(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  const known = readText(path) !== undefined;
  const file = known ? realpathSync(path) : path;
  const mode = known ? statSync(file).mode & 0o777 : 0o600;
  writePrivateFile(file, text);
  chmodSync(file, mode);
}

function save(tool: string, saved: Saved): void {
  const file = savedFile(tool);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writePrivateFile(file, `${JSON.stringify(saved)}\n`);
}

/** Writes a file that belongs to `otela`. @throws UsageError if another program or person wrote a file of this name */
export function writeOwnFile(tool: string, file: string, text: string): void {
  const before = readText(file);
  if (before !== undefined && savedOf(tool)?.file !== file && !before.startsWith(OWN_MARK))
    throw new UsageError(`${file} exists, and otela did not write it: move it away`);
  save(tool, { file, members: [], created: true });
  replaceText(file, text);
}

/**
 * Sets members of a JSON file and remembers their previous values.
 * @throws UsageError if the file is not a JSON object, for example because it has comments, which would be lost
 */
export function setMembers(tool: string, file: string, members: readonly Member[]): void {
  restore(tool);
  const text = readText(file);
  const document = text === undefined ? {} : objectOf(file, text);
  const before = members.map(({ path, value }) => ({ path: [...path], ...setMember(file, document, path, value) }));
  save(tool, { file, members: before, created: text === undefined });
  replaceText(file, `${JSON.stringify(document, undefined, 2)}\n`);
}

/** Members of an object in a JSON file that are not equal to `wanted`, by name. */
export function differingMembers(file: string, member: string, wanted: Readonly<Record<string, string>>): string[] {
  const document = tryParseJson(readText(file) ?? '');
  const inner = isObject(document) && Object.hasOwn(document, member) ? document[member] : undefined;
  if (!isObject(inner)) return [];
  return Object.keys(wanted).filter((name) => Object.hasOwn(inner, name) && inner[name] !== wanted[name]);
}

/**
 * Restores what `--config` changed. Other changes of the file stay. @returns the file; undefined: nothing to restore
 */
export function restore(tool: string): string | undefined {
  const saved = savedOf(tool);
  if (saved === undefined) return undefined;
  const { file, members, created } = saved;
  const text = readText(file);
  if (text !== undefined && members.length === 0) rmSync(file);
  else if (text !== undefined) {
    const document = objectOf(file, text);
    for (const { path, ...rest } of members) resetMember(document, path, rest);
    if (created && Object.keys(document).length === 0) rmSync(file);
    else replaceText(file, `${JSON.stringify(document, undefined, 2)}\n`);
  }
  rmSync(savedFile(tool));
  return file;
}

function savedOf(tool: string): Saved | undefined {
  return savedSchema.safeParse(tryParseJson(readText(savedFile(tool)) ?? '')).data;
}

function objectOf(file: string, text: string): JsonObject {
  const document = text.trim() === '' ? {} : tryParseJson(text);
  if (!isObject(document))
    throw new UsageError(`${file} is not a JSON object without comments; see docs/clients.md for what to add by hand`);
  return document;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Sets the member, and objects on the way to it. @returns its previous value, if it had one */
function setMember(file: string, document: JsonObject, path: readonly string[], value: unknown): { before?: unknown } {
  let at = document;
  for (const name of path.slice(0, -1)) {
    if (!Object.hasOwn(at, name)) at[name] = {};
    const next = at[name];
    if (!isObject(next)) throw new UsageError(`${file}: ${name} is not an object`);
    at = next;
  }
  const last = path.at(-1) ?? '';
  const before = Object.hasOwn(at, last) ? { before: at[last] } : {};
  if (value === undefined) delete at[last];
  else at[last] = value;
  return before;
}

/** Gives the member its previous value, and removes objects that are empty after it. */
function resetMember(document: JsonObject, path: readonly string[], previous: { before?: unknown }): void {
  const [name = '', ...rest] = path;
  if (rest.length > 0) {
    const inner = Object.hasOwn(document, name) ? document[name] : undefined;
    if (!isObject(inner)) return;
    resetMember(inner, rest, previous);
    if (Object.keys(inner).length === 0) delete document[name];
  } else if (Object.hasOwn(previous, 'before')) document[name] = previous.before;
  else delete document[name];
}
