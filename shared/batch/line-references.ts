/**
 * Lines that need results of other batches. Such a line names them by the batch's index in `x_otela.after`, and the
 * line's number in that batch's input, from 0:
 * - `{"$result":[0,17]}`, written exactly so, stands for the result. A function gets it as `{"$otela_value":…}`; if the
 *   result has files, their ids and names are beside it in `files`, and the ids are added to the line's `body.files`;
 * - the line's member `after`, a list of such pairs, waits for results without getting them.
 * The results are there before the line is leased. A batch names only batches that exist, so there are no cycles.
 */
import { hasBit } from './bitmap.ts';

/** Maximum batches that a batch names, and maximum batches that name the same batch. */
export const AFTER_MAX = 16;
export const DEPENDENTS_MAX = 64;
/** Maximum batches in a chain. */
export const CHAIN_MAX = 32;
/** Maximum results for a single line, and for all lines of a batch together. */
export const LINE_REFERENCES_MAX = 10_000;
export const BATCH_REFERENCES_MAX = 200_000;

const REFERENCE = /\{"\$result":\[(\d{1,2}),(\d{1,5})\]\}/g;

/** A line of another batch: the batch's index in `x_otela.after`, and the line's number in its input. */
export type LineReference = readonly [batch: number, line: number];

/** A line of the input that waits for results. */
export interface WaitingLine {
  /** Number of the line in the input, from 0. */
  line: number;
  offset: number;
  bytes: number;
  /** Index of its requirements. */
  demands: number;
  needs: LineReference[];
}

/** How far a batch is, for batches that need its results. `done` has a bit for each line with a result. */
export interface BatchProgress {
  ended: boolean;
  done: Uint8Array;
}

/** A file of the Files API in a result. */
export interface ResultFile {
  id: string;
  name: string;
}

/** The result of one line of another batch, as JSON text and with its files; or why there is none. */
export type LineValue = { line: number; value: string; files?: ResultFile[] } | { line: number; why: string };

/**
 * The references of a line, each once.
 * @param text the line, which is valid JSON: in a string, the quotes of a reference would be escaped
 * @returns undefined if `after` is not a list of pairs, if a reference names no batch, or if there are too many
 */
export function readReferences(text: string, after: unknown, batches: number): LineReference[] | undefined {
  const found = new Map<string, LineReference>();
  const add = (batch: unknown, line: unknown) => {
    if (!isIndex(batch) || !isIndex(line) || batch >= batches) return false;
    found.set(`${batch}/${line}`, [batch, line]);
    return found.size <= LINE_REFERENCES_MAX;
  };
  for (const [, batch, line] of text.matchAll(REFERENCE)) if (!add(Number(batch), Number(line))) return undefined;
  const waits = after ?? [];
  if (!Array.isArray(waits)) return undefined;
  for (const pair of waits) if (!Array.isArray(pair) || pair.length !== 2 || !add(pair[0], pair[1])) return undefined;
  return [...found.values()];
}

function isIndex(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0;
}

/** @param textOf returns the JSON text of a result */
export function withResults(text: string, textOf: (reference: LineReference) => string): string {
  return text.replace(REFERENCE, (_, batch: string, line: string) => textOf([Number(batch), Number(line)]));
}

/** True if all results that a line needs are there, or never will be. */
export function isReady({ needs }: WaitingLine, progress: readonly (BatchProgress | null)[]): boolean {
  return needs.every(([batch, line]) => {
    const state = progress[batch];
    return state === null || state === undefined || state.ended || hasBit(state.done, line);
  });
}
