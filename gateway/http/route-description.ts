import type * as z from 'zod';

/**
 * The end of a route's path: a model's name. It may have slashes, raw or encoded, and any other character; `.` would
 * not match a line break.
 */
export function modelParam(name: 'id' | 'model'): string {
  return `:${name}{[^]+}`;
}

/**
 * A route outside the admin REST API, as `/openapi.json` describes it. Its handler validates requests with its own
 * rules.
 */
export interface RouteDescription {
  method: 'get' | 'post' | 'delete';
  /** In OpenAPI's form: `{id}`. */
  path: string;
  summary: string;
  /** Required rights. Default: scope inference. */
  needs?: string;
  query?: z.ZodType;
  /** A JSON body. */
  body?: z.ZodType;
  /** Example of a body. */
  example?: object;
  /** A multipart/form-data body. */
  form?: z.ZodType;
  /** A JSON response. */
  answer?: z.ZodType;
  /** The response is bytes. */
  bytes?: true;
}
