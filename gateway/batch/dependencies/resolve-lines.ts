/** Gives lines the results of other batches that they need, so that nodes can run them. */
import { CHUNK_BYTES, CHUNK_LINES, INPUT_MAX_BYTES, LINE_MAX_BYTES } from '../../../shared/batch/batch-input-check.ts';
import { FUNCTIONS_ENDPOINT } from '../../../shared/batch/function-context.ts';
import { BATCH_OUTPUTS_MAX } from '../../../shared/batch/function-files.ts';
import type { LineReference, LineValue, WaitingLine } from '../../../shared/batch/line-references.ts';
import { withResults } from '../../../shared/batch/line-references.ts';
import { concat } from '../../../shared/collections/concat.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import type { Env } from '../../env.ts';
import { type FileStore, FileStoreError } from '../../files/file-store.ts';
import { storeOf } from '../../files/store-access.ts';
import type { BatchRecord } from '../batch-record.ts';
import type { BatchSpec } from '../batch-spec.ts';
import { objectOrUnavailable } from '../step-failures.ts';
import type { ResolvedLine } from './append-lines.ts';
import { functionValue, newFiles, withLineFiles } from './result-files.ts';

/** How often a batch looks whether the results are there. */
const LOOK_MS = 1_000;
/** Maximum groups of lines in one step, so that the object also answers nodes. */
const GROUPS_MAX = 10;
/** Maximum bytes of the results for one group of lines. */
const VALUES_BYTES = 32 * 1024 * 1024;

interface ResolveOptions {
  env: Env;
  record: BatchRecord;
  spec: BatchSpec;
  nowMs: number;
}

/** @returns milliseconds until the next step; infinite if no line waits */
export async function resolveLines(options: ResolveOptions): Promise<number> {
  const { env, record, spec, nowMs } = options;
  const { waiting } = record;
  if (waiting.all.length === 0) return Number.POSITIVE_INFINITY;
  const batches = (spec.after ?? []).map((id) => env.BATCH.getByName(id));
  const progress = await objectOrUnavailable('batch', Promise.all(batches.map((one) => one.progress())));
  for (let groups = 0; groups < GROUPS_MAX; groups++) {
    const ready = withinBytes(waiting.ready(progress, CHUNK_LINES));
    if (ready.length === 0) return waiting.all.length === 0 ? 0 : LOOK_MS;
    const resolved = await resolveGroup(options, ready);
    // The batch may have been canceled or forgotten meanwhile.
    if (record.spec === undefined || record.state.status !== 'in_progress') return 0;
    record.resolve(resolved, nowMs);
  }
  return 0;
}

/** The first lines that have at most CHUNK_BYTES together; at least one. */
function withinBytes(lines: readonly WaitingLine[]): WaitingLine[] {
  let bytes = 0;
  const end = lines.findIndex((one, i) => {
    bytes += one.bytes;
    return i > 0 && bytes > CHUNK_BYTES;
  });
  return end < 0 ? [...lines] : lines.slice(0, end);
}

async function resolveGroup(options: ResolveOptions, lines: readonly WaitingLine[]): Promise<ResolvedLine[]> {
  const values = await valuesOf(options, lines);
  const [first] = lines;
  if (values === undefined && lines.length > 1)
    return resolveGroup(options, lines.slice(0, Math.ceil(lines.length / 2)));
  if (values === undefined) return first === undefined ? [] : [{ of: first, why: TOO_LARGE }];
  const { env, spec, record } = options;
  let room = INPUT_MAX_BYTES - record.waiting.textBytes;
  const added = new Set<string>();
  const filesRoom = BATCH_OUTPUTS_MAX - record.waiting.fileCount;
  const resolved: ResolvedLine[] = [];
  for (const of of lines) {
    const text = await readLine(storeOf(env), spec.inputFileId, of);
    const made = resolvedLine(spec, of, text, values);
    room -= 'text' in made ? made.text.length : 0;
    for (const id of newFiles(made, record.waiting)) added.add(id);
    resolved.push(room < 0 ? { of, why: TOO_LARGE } : added.size > filesRoom ? { of, why: TOO_MANY_FILES } : made);
  }
  return resolved;
}

const TOO_LARGE = 'The results that it needs are too large.';
const TOO_MANY_FILES = 'The results that it needs have too many files.';

type Value = Omit<Extract<LineValue, { value: string }>, 'line'>;
type Values = ReadonlyMap<string, Value | { why: string }>;
const keyOf = ([batch, line]: LineReference) => `${batch}/${line}`;

/** @returns undefined if they have more than VALUES_BYTES */
async function valuesOf({ env, spec }: ResolveOptions, lines: readonly WaitingLine[]): Promise<Values | undefined> {
  const values = new Map<string, Value | { why: string }>();
  let room = VALUES_BYTES;
  for (const [index, id] of (spec.after ?? []).entries()) {
    const needed = new Set(
      lines.flatMap(({ needs }) => needs.filter(([batch]) => batch === index).map(([, line]) => line)),
    );
    let left = [...needed];
    while (left.length > 0) {
      const page = await objectOrUnavailable('batch', env.BATCH.getByName(id).values(left));
      const found = page ?? left.map((line) => ({ line, why: `The batch ${id} was deleted.` }));
      for (const one of found) {
        room -= 'value' in one ? one.value.length : 0;
        values.set(keyOf([index, one.line]), one);
      }
      if (room < 0) return undefined;
      left = left.slice(Math.max(1, found.length));
    }
  }
  return values;
}

function resolvedLine({ endpoint }: BatchSpec, of: WaitingLine, text: string, values: Values): ResolvedLine {
  for (const need of of.needs) {
    const found = values.get(keyOf(need));
    if (found === undefined || 'why' in found) return { of, why: found?.why ?? 'It needs a line that does not exist.' };
  }
  let why: string | undefined;
  const files = new Set<string>();
  const filled = withResults(text, (need) => {
    const found = values.get(keyOf(need));
    const { value, files: written = [] } = found !== undefined && 'value' in found ? found : { value: 'null' };
    if (endpoint === FUNCTIONS_ENDPOINT) {
      for (const { id } of written) files.add(id);
      return functionValue(value, written);
    }
    // An engine would refuse anything else, or read it in its own way.
    if (!value.startsWith('"')) why = 'A served model takes texts, and a result that it needs is not a text.';
    return value;
  });
  if (why !== undefined) return { of, why };
  const made = withLineFiles(filled, files);
  if (made === undefined) return { of, why: TOO_MANY_FILES };
  if (made.length > LINE_MAX_BYTES / 2 && new TextEncoder().encode(made).length > LINE_MAX_BYTES)
    return { of, why: TOO_LARGE };
  const { custom_id: id } = (tryParseJson(text) ?? {}) as { custom_id?: unknown };
  return { of, text: made, id: String(id), ...(files.size > 0 && { files: [...files] }) };
}

async function readLine(store: FileStore, input: string, { offset, bytes }: WaitingLine): Promise<string> {
  const content = await store.read(input, { offset, length: bytes });
  if (content === undefined) throw new FileStoreError('damaged', `the file store has lost ${input}`);
  const pieces: Uint8Array[] = [];
  for await (const piece of content) pieces.push(piece);
  return new TextDecoder().decode(concat(pieces));
}
