/** Builds parts of an OpenAPI document from zod schemas. */
import * as z from 'zod';
import type { RouteDescription } from '../../http/route-description.ts';
import type { AdminRoute } from '../admin-route.ts';

export interface Operation {
  method: string;
  path: string;
  tag: string;
  summary: string;
  /** The required role and scope, as a sentence. */
  needs: string;
  operation: object;
}

const ANY_TEXT = z.string();
export const JSON_TYPE = 'application/json';
export const ERROR = { $ref: '#/components/responses/error' };

export function schemaOf(schema: z.ZodType, io: 'input' | 'output'): object {
  const { $schema: _, ...made } = z.toJSONSchema(schema, { io, unrepresentable: 'any', target: 'draft-2020-12' });
  return made;
}

/** Converts a path to OpenAPI's form of parameters: `{id}`. */
export function openPath(path: string): string {
  return path.replace(/:(\w+)(\{[^}]*\})?/g, '{$1}');
}

export function pathParameters(path: string, params: AdminRoute['params'] = {}): object[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: Object.hasOwn(params, name)
      ? schemaOf(params[name] ?? ANY_TEXT, 'input')
      : { type: 'string', minLength: 1 },
  }));
}

export function queryParameters(query: z.ZodType | undefined): object[] {
  if (query === undefined) return [];
  const { properties = {}, required = [] } = z
    .object({ properties: z.record(z.string(), z.unknown()).optional(), required: z.array(z.string()).optional() })
    .parse(schemaOf(query, 'input'));
  return Object.entries(properties).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema,
  }));
}

export function contentOf(answer: z.ZodType | undefined): object {
  return answer === undefined ? {} : { content: { [JSON_TYPE]: { schema: schemaOf(answer, 'output') } } };
}

export function describedOperation({ method, path, summary, ...of }: RouteDescription): Operation {
  const example = of.example === undefined ? {} : { example: of.example };
  const requestOf = (type: string, schema: z.ZodType) => ({
    requestBody: { required: true, content: { [type]: { schema: schemaOf(schema, 'input'), ...example } } },
  });
  const answer = of.bytes === true ? { content: { 'application/octet-stream': {} } } : contentOf(of.answer);
  return {
    method,
    path,
    tag: path.split('/').at(path.startsWith('/v1/') ? 2 : 1) ?? '',
    summary,
    needs: of.needs ?? 'scope inference',
    operation: {
      parameters: [...pathParameters(path), ...queryParameters(of.query)],
      ...(of.body && requestOf(JSON_TYPE, of.body)),
      ...(of.form && requestOf('multipart/form-data', of.form)),
      responses: {
        '200': { description: 'Done.', ...answer },
        ...(of.bytes === true && { '206': { description: 'The bytes of the requested `range`.', ...answer } }),
        default: ERROR,
      },
    },
  };
}
