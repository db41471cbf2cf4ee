/** Users' own functions as contexts of batches: see docs/functions.md. */

/** Exists in batches alone: a function is not asked line by line. */
export const FUNCTIONS_ENDPOINT = '/v1/otela/functions';
/** One Python file. Weights and data are loaded by it, not part of it. */
export const FUNCTION_MAX_BYTES = 512 * 1024;
/** Why a function failed, as its lines' errors show it. */
export const WHY_MAX = 1_024;

const MODEL = /^function:(file-[A-Za-z0-9_-]{1,64})(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?$/;

/** What a line's `model` names: the file, and where the file has several functions, one of them. */
export interface FunctionName {
  file: string;
  name?: string;
}

/** `function:FILE` or `function:FILE:NAME`; undefined: it is neither. */
export function readFunctionName(model: string): FunctionName | undefined {
  const [, file, name] = MODEL.exec(model) ?? [];
  if (file === undefined) return undefined;
  return name === undefined ? { file } : { file, name };
}

/** What is hashed to name a context. The owner is in it: two projects with one file never share a process. */
export function contextMessage(owner: string, codeSha256: string, name: string | undefined): string {
  return `otela-function-1\n${owner}\n${codeSha256}\n${name ?? ''}\n`;
}

/** Contexts that a node knows, by how soon each can run a line. */
export interface HeldContexts {
  ready: readonly string[];
  loading: readonly string[];
  /** Its file is here. */
  stored: readonly string[];
  /** Failed here a moment ago: not now. */
  broken: readonly string[];
}

export type Warmth = 'ready' | 'loading' | 'stored' | 'cold';

export function warmthOf(context: string, { ready, loading, stored }: HeldContexts): Warmth {
  if (ready.includes(context)) return 'ready';
  if (loading.includes(context)) return 'loading';
  return stored.includes(context) ? 'stored' : 'cold';
}
