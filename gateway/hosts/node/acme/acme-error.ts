import * as z from 'zod';
import { printable } from '../../../../shared/terminal/printable.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';

/** Maximum length of an authority's text in a message. */
const DETAIL_MAX = 500;
const TYPE_PREFIX = 'urn:ietf:params:acme:error:';

/** A problem document (RFC 7807), which also explains why a challenge failed. */
export const problemSchema = z.looseObject({ type: z.string().default(''), detail: z.string().default('') });
export type Problem = z.infer<typeof problemSchema>;

/** A certificate authority refused a request, or did not answer by the protocol. */
export class AcmeError extends Error {
  override readonly name = 'AcmeError';
  /**
   * The problem's type without its prefix (RFC 8555 §6.7), such as `rateLimited`. Undefined: the authority did not
   * decide, so that trying again does not use up its limits.
   */
  readonly problem: string | undefined;
  /** How long the authority asks to wait. */
  readonly retryAfterMs: number;

  constructor(message: string, problem?: string, retryAfterMs = 0) {
    super(message);
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @param what the request, or the name that was not confirmed */
export function refusal(what: string, { type, detail }: Problem, retryAfterMs = 0): AcmeError {
  const problem = type.startsWith(TYPE_PREFIX) ? type.slice(TYPE_PREFIX.length) : 'unknown';
  const text = printable(`${problem}: ${detail}`).slice(0, DETAIL_MAX);
  return new AcmeError(`the certificate authority refused ${what}: ${text}`, problem, retryAfterMs);
}

/** Returns the problem in the body of an error response. Undefined: it has none. */
export function problemIn(body: string): Problem | undefined {
  return problemSchema.safeParse(tryParseJson(body)).data;
}
