/**
 * `npm run api:generate` writes `dashboard/api/contract.ts`, the types of the dashboard's client, from the gateway's
 * OpenAPI document. It contains only types, so the page is bundled without it. `node build.ts`, `npm run lint` and `npm
 * test` also write it before they check the dashboard's types.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';

const CONTRACT = fileURLToPath(new URL('../dashboard/api/contract.ts', import.meta.url));

/** The parts of JSON Schema that the gateway's document uses and that affect a type. */
interface Schema {
  type?: string | string[] | undefined;
  const?: unknown;
  enum?: unknown[] | undefined;
  anyOf?: Schema[] | undefined;
  oneOf?: Schema[] | undefined;
  items?: Schema | undefined;
  properties?: Record<string, Schema> | undefined;
  required?: string[] | undefined;
  additionalProperties?: boolean | Schema | undefined;
}
const schema: z.ZodType<Schema> = z.lazy(() =>
  z.object({
    type: z.union([z.string(), z.array(z.string())]).optional(),
    const: z.unknown().optional(),
    enum: z.array(z.unknown()).optional(),
    anyOf: z.array(schema).optional(),
    oneOf: z.array(schema).optional(),
    items: schema.optional(),
    properties: z.record(z.string(), schema).optional(),
    required: z.array(z.string()).optional(),
    additionalProperties: z.union([z.boolean(), schema]).optional(),
  }),
);
const content = z.record(z.string(), z.object({ schema: schema.optional() }));
const response = z.object({ content: content.optional() });
type Response = z.infer<typeof response>;
const operation = z.object({
  parameters: z
    .array(z.object({ name: z.string(), in: z.string(), required: z.boolean().default(false), schema }))
    .default([]),
  requestBody: z.object({ required: z.boolean().default(false), content }).optional(),
  responses: z.record(z.string(), z.union([z.object({ $ref: z.string() }), response])),
});
type Operation = z.infer<typeof operation>;
const documentSchema = z.object({
  paths: z.record(
    z.string(),
    z.record(z.enum(['get', 'put', 'post', 'delete', 'patch', 'head']), operation.optional()),
  ),
  components: z.object({ responses: z.record(z.string(), response) }),
});

const REFERENCE = '#/components/responses/';
const SIMPLE: Readonly<Record<string, string>> = {
  string: 'string',
  integer: 'number',
  number: 'number',
  boolean: 'boolean',
  null: 'null',
};

function typeOf(of: Schema): string {
  if (of.const !== undefined) return JSON.stringify(of.const);
  if (of.enum !== undefined) return of.enum.map((value) => JSON.stringify(value)).join(' | ');
  const either = of.anyOf ?? of.oneOf;
  if (either !== undefined) return either.map((one) => `(${typeOf(one)})`).join(' | ');
  if (Array.isArray(of.type)) return of.type.map((type) => typeOf({ ...of, type })).join(' | ');
  if (of.type === 'array') return `(${of.items === undefined ? 'unknown' : typeOf(of.items)})[]`;
  if (of.type === 'object') return objectOf(of);
  return SIMPLE[of.type ?? ''] ?? 'unknown';
}

function objectOf({ properties = {}, required = [], additionalProperties }: Schema): string {
  const fields = Object.entries(properties).map(([name, of]) => {
    return field(name, required.includes(name), typeOf(of));
  });
  const others = typeof additionalProperties === 'object' ? typeOf(additionalProperties) : 'unknown';
  const open = additionalProperties !== false && (fields.length === 0 || additionalProperties !== undefined);
  const rest = open ? [`[name: string]: ${others}`] : [];
  return fields.length + rest.length === 0 ? 'Record<string, never>' : `{ ${[...fields, ...rest].join('; ')} }`;
}

const field = (name: string, required: boolean, type: string): string =>
  `${JSON.stringify(name)}${required ? '' : '?'}: ${type}`;

function contentOf(of: z.infer<typeof content> | undefined): string {
  if (of === undefined) return 'content?: never';
  const kinds = Object.entries(of).map(([kind, { schema: one }]) => field(kind, true, one ? typeOf(one) : 'unknown'));
  return `content: { ${kinds.join('; ')} }`;
}

const responseOf = (of: Response): string => `{ headers: { [name: string]: unknown }; ${contentOf(of.content)} }`;

function operationOf({ parameters, requestBody, responses }: Operation): string {
  const places = ['query', 'header', 'path', 'cookie'].map((place) => {
    const own = parameters.filter((one) => one.in === place);
    if (own.length === 0) return `${place}?: never`;
    const fields = own.map(({ name, required, schema: of }) => field(name, required, typeOf(of)));
    return `${place}${own.some(({ required }) => required) ? '' : '?'}: { ${fields.join('; ')} }`;
  });
  const body =
    requestBody === undefined
      ? 'requestBody?: never'
      : `requestBody${requestBody.required ? '' : '?'}: { ${contentOf(requestBody.content)} }`;
  const answers = Object.entries(responses).map(
    ([status, of]) =>
      `${status}: ${'$ref' in of ? `Responses[${JSON.stringify(of.$ref.replace(REFERENCE, ''))}]` : responseOf(of)}`,
  );
  return `{ parameters: { ${places.join('; ')} }; ${body}; responses: { ${answers.join('; ')} } }`;
}

/** The module's text for the document at the gateway's `/openapi.json`. */
function contractOf(document: unknown): string {
  const { paths, components } = documentSchema.parse(document);
  const shared = Object.entries(components.responses).map(([name, of]) => `  ${field(name, true, responseOf(of))};\n`);
  const rows = Object.entries(paths).map(([path, methods]) => {
    const own = Object.entries(methods).flatMap(([method, of]) =>
      of === undefined ? [] : [`    ${method}: ${operationOf(of)};\n`],
    );
    return `  ${JSON.stringify(path)}: {\n${own.join('')}  };\n`;
  });
  return `/** Made by \`npm run api:generate\`; not in git. */\ninterface Responses {\n${shared.join('')}}\n\nexport interface paths {\n${rows.join('')}}\n`;
}

/** `/openapi.json` of a gateway, as text. */
export async function openApiText(): Promise<string> {
  // The path is a variable, so that tsc does not follow the import: the gateway is checked with the types of Workers,
  // and this file with Node's.
  const source = '../gateway/admin/openapi/document.ts';
  const { openApiRoutes } = await import(source);
  const answer: globalThis.Response = await openApiRoutes.request('http://gateway/openapi.json');
  return answer.text();
}

export async function writeContract(): Promise<void> {
  writeFileSync(CONTRACT, contractOf(JSON.parse(await openApiText())));
}

if (import.meta.main) await writeContract();
