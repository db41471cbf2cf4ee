/** What processes say to each other on a link. A process calls another one on the link that it opened itself. */
import * as z from 'zod';

export const CALLS_PATH = '/calls';
export const FETCH_PATH = '/fetch';

/** Maximum calls of one link that wait for their results, and maximum streams. */
export const CALLS_MAX = 4_096;

export const helloSchema = z.object({ incarnation: z.string(), version: z.string() });
export type Hello = z.infer<typeof helloSchema>;

export const callSchema = z.object({
  id: z.number(),
  className: z.string(),
  name: z.string(),
  method: z.string(),
  args: z.array(z.unknown()),
  /** The caller does not reach the owner: the called process passes the call on, once. */
  relayed: z.boolean().optional(),
  /** A process that may have lost its limits objects refuses the call. */
  sure: z.boolean().optional(),
});
export type LinkCall = z.infer<typeof callSchema>;

/** `moved`: the process does not own the object, and has not called it. `inDoubt`: the owner may have lost it. */
export const replySchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('result'), id: z.number(), value: z.unknown() }),
  z.object({ kind: z.literal('error'), id: z.number(), message: z.string(), overloaded: z.boolean() }),
  z.object({ kind: z.literal('moved'), id: z.number(), inDoubt: z.boolean().optional() }),
  /** Sessions of agents that connected to the process, or left it. `all`: earlier lists do not count. */
  z.object({ kind: z.literal('tunnels'), all: z.boolean(), opened: z.array(z.string()), closed: z.array(z.string()) }),
]);
export type LinkReply = z.infer<typeof replySchema>;

const headersSchema = z.array(z.tuple([z.string(), z.string()]));

export const fetchSchema = z.object({
  className: z.string(),
  name: z.string(),
  url: z.string(),
  method: z.string(),
  headers: headersSchema,
  hasBody: z.boolean(),
});
export type LinkFetch = z.infer<typeof fetchSchema>;

export const fetchReplySchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('response'), status: z.number(), headers: headersSchema, hasBody: z.boolean() }),
  z.object({ kind: z.literal('socket'), headers: headersSchema }),
  z.object({ kind: z.literal('error'), message: z.string(), overloaded: z.boolean() }),
  z.object({ kind: z.literal('moved') }),
]);
export type LinkFetchReply = z.infer<typeof fetchReplySchema>;

/** The called process does not own the object, and has not called it. */
export class MovedError extends Error {
  override readonly name = 'Moved';
  /** True if the process owned the object, but has not reached PostgreSQL since. */
  readonly inDoubt: boolean;

  constructor(message: string, { inDoubt = false } = {}) {
    super(message);
    this.inDoubt = inDoubt;
  }
}

/** The link broke, or could not be used. If the call was sent, it may have happened. */
export class LinkError extends Error {
  override readonly name = 'Link';
  /** True if the call was refused because too many wait. Callers know this member from Cloudflare's errors. */
  readonly overloaded: boolean;

  constructor(message: string, { overloaded = false, cause }: { overloaded?: boolean; cause?: unknown } = {}) {
    super(message, { cause });
    this.overloaded = overloaded;
  }
}

export function isOverloaded(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'overloaded' in error && error.overloaded === true;
}
