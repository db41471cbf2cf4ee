/** The parts of the gateway's OpenAPI document that the reference shows. */
import * as z from 'zod/mini';
import { readGateway } from '../api/client.ts';

/** The members of a JSON Schema (2020-12) that are shown. */
export interface Schema {
  type?: string | string[] | undefined;
  description?: string | undefined;
  default?: unknown;
  const?: unknown;
  enum?: unknown[] | undefined;
  examples?: unknown[] | undefined;
  format?: string | undefined;
  minimum?: number | undefined;
  maximum?: number | undefined;
  maxLength?: number | undefined;
  maxItems?: number | undefined;
  properties?: Record<string, Schema> | undefined;
  required?: string[] | undefined;
  additionalProperties?: boolean | Schema | undefined;
  items?: Schema | undefined;
  anyOf?: Schema[] | undefined;
  oneOf?: Schema[] | undefined;
}

const schemaSchema: z.ZodMiniType<Schema> = z.lazy(() =>
  z.object({
    type: z.optional(z.union([z.string(), z.array(z.string())])),
    description: z.optional(z.string()),
    default: z.optional(z.unknown()),
    const: z.optional(z.unknown()),
    enum: z.optional(z.array(z.unknown())),
    examples: z.optional(z.array(z.unknown())),
    format: z.optional(z.string()),
    minimum: z.optional(z.number()),
    maximum: z.optional(z.number()),
    maxLength: z.optional(z.number()),
    maxItems: z.optional(z.number()),
    properties: z.optional(z.record(z.string(), schemaSchema)),
    required: z.optional(z.array(z.string())),
    additionalProperties: z.optional(z.union([z.boolean(), schemaSchema])),
    items: z.optional(schemaSchema),
    anyOf: z.optional(z.array(schemaSchema)),
    oneOf: z.optional(z.array(schemaSchema)),
  }),
);

const contentSchema = z.record(
  z.string(),
  z.object({ schema: z.optional(schemaSchema), example: z.optional(z.unknown()) }),
);
const parameterSchema = z.object({
  name: z.string(),
  in: z.enum(['path', 'query', 'header']),
  required: z.optional(z.boolean()),
  description: z.optional(z.string()),
  schema: z.optional(schemaSchema),
});
const operationSchema = z.object({
  operationId: z.string(),
  tags: z.array(z.string()),
  summary: z.string(),
  description: z.optional(z.string()),
  parameters: z.optional(z.array(parameterSchema)),
  requestBody: z.optional(z.object({ content: contentSchema })),
  responses: z.record(
    z.string(),
    z.object({ description: z.optional(z.string()), content: z.optional(contentSchema) }),
  ),
});
const documentSchema = z.object({ paths: z.record(z.string(), z.record(z.string(), operationSchema)) });

export type Parameter = z.infer<typeof parameterSchema>;
export type Content = z.infer<typeof contentSchema>;
export type ApiOperation = z.infer<typeof operationSchema> & { method: string; path: string };

/** Returns the operations by tag, in the document's order. */
export async function operationsOf(signal: AbortSignal): Promise<Map<string, ApiOperation[]>> {
  const { paths } = await readGateway(documentSchema, '/openapi.json', signal);
  const all = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, method, path })),
  );
  return Map.groupBy(all, ({ tags }) => tags[0] ?? '');
}
