import type * as z from 'zod';

/** The end of a route's path: a model's name. It may have slashes, raw or encoded, and any other character: `.` matches no line break. */
export function modelParam(name: 'id' | 'model'): string {
  return `:${name}{[^]+}`;
}

/** A route outside the admin REST, as `/openapi.json` describes it. Its handler checks what comes by its own rules. */
export interface RouteDescription {
  method: 'get' | 'post' | 'delete';
  /** As OpenAPI writes it: `{id}`. */
  path: string;
  summary: string;
  /** Who may call it. Default: scope inference. */
  needs?: string;
  query?: z.ZodType;
  /** A JSON body. */
  body?: z.ZodType;
  /** A body of that form. */
  example?: object;
  /** A multipart/form-data body. */
  form?: z.ZodType;
  /** A JSON answer. */
  answer?: z.ZodType;
  /** The answer is bytes. */
  bytes?: true;
}
