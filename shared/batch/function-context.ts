/** Users' Python functions, which run as contexts of batches; see docs/functions.md. */

/** This endpoint exists only in batches. */
export const FUNCTIONS_ENDPOINT = '/v1/otela/functions';
/**
 * The name of all functions together, in place of a model's: of their queue, and in a factory's file. A node runs a
 * function only if the node admits the function's owner.
 */
export const FUNCTIONS_MODEL = 'function:';
/** Maximum size of one Python file. Weights and data are not part of the file; it loads them itself. */
export const FUNCTION_MAX_BYTES = 512 * 1024;
/** Maximum length of a function's failure message in a line's error. */
export const WHY_MAX = 1_024;

const MODEL = /^function:(file-[A-Za-z0-9_-]{1,64})(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?$/;

/** The function that a line's `model` names: a file and, if the file has several functions, the function's name. */
interface FunctionName {
  file: string;
  name?: string;
}

/** Parses `function:FILE` or `function:FILE:NAME`; undefined for any other text. */
export function readFunctionName(model: string): FunctionName | undefined {
  const [, file, name] = MODEL.exec(model) ?? [];
  if (file === undefined) return undefined;
  return name === undefined ? { file } : { file, name };
}

/**
 * The message whose hash identifies a context. The message includes the owner, so that two projects with the same file
 * never share a process.
 */
export function contextMessage(owner: string, codeSha256: string, name: string | undefined): string {
  return `otela-function-1\n${owner}\n${codeSha256}\n${name ?? ''}\n`;
}

/** The contexts on a node, by how soon each can run a line. */
export interface NodeContexts {
  ready: readonly string[];
  loading: readonly string[];
  /** The file is stored on the node. */
  stored: readonly string[];
  /** The function failed on the node a moment ago, and is not available now. */
  broken: readonly string[];
}

export type ContextWarmth = 'ready' | 'loading' | 'stored' | 'cold';

export function contextWarmth(context: string, { ready, loading, stored }: NodeContexts): ContextWarmth {
  if (ready.includes(context)) return 'ready';
  if (loading.includes(context)) return 'loading';
  return stored.includes(context) ? 'stored' : 'cold';
}
