import type * as z from 'zod';

/**
 * Returns the end of a route's path that matches a model's name. A name may contain slashes, raw or encoded, and any
 * other character; `.` would not match a line break.
 */
export function modelParam(name: 'id' | 'model'): string {
  return `:${name}{[^]+}`;
}

/** A route outside the admin API, as `/openapi.json` describes it. Its handler validates requests by its own code. */
export interface RouteDescription {
  method: 'get' | 'post' | 'put' | 'delete';
  /** Path in OpenAPI's form, with parameters such as `{id}`. */
  path: string;
  summary: string;
  /** Required rights, as a sentence. Default: scope inference. */
  needs?: string;
  query?: z.ZodType;
  /** Schema of the JSON body. */
  body?: z.ZodType;
  /** Example of a body. */
  example?: object;
  /** Schema of the multipart/form-data body. */
  form?: z.ZodType;
  /** Schema of the JSON response. */
  answer?: z.ZodType;
  /** Set if the response is bytes. */
  bytes?: true;
}
