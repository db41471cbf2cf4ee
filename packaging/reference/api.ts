/** The page of the reference with every path of a gateway, from its own OpenAPI document. */
import * as z from 'zod';
import { openApiText } from '../dashboard-api-types.ts';
import { code, markdownTable } from './table.ts';

const schemaSchema = z.looseObject({
  required: z.array(z.string()).optional(),
  properties: z.record(z.string(), z.unknown()).optional(),
});
const operationSchema = z.looseObject({
  tags: z.array(z.string()).min(1),
  summary: z.string(),
  description: z.string(),
  parameters: z.array(z.looseObject({ name: z.string(), in: z.string(), description: z.string().optional() })),
  requestBody: z.looseObject({ content: z.record(z.string(), z.looseObject({ schema: schemaSchema })) }).optional(),
});
const documentSchema = z.looseObject({ paths: z.record(z.string(), z.record(z.string(), operationSchema)) });

type Operation = z.infer<typeof operationSchema> & { method: string; path: string };

export async function apiPage(): Promise<string> {
  const operations = await allOperations();
  const sections = [...Map.groupBy(operations, ({ tags: [tag = ''] }) => tag)].map(([tag, some]) => {
    const rows = some.map((one) => [
      code(`${one.method.toUpperCase()} ${one.path}`),
      one.summary,
      takes(one),
      needs(one),
    ]);
    return `## ${tag}\n\n${markdownTable(['path', 'what', 'takes', 'needs'], rows)}`;
  });
  return [
    '# API of a gateway',
    "The gateway's own `/openapi.json` has every type and bound; `/docs` shows it. `takes` lists query parameters (`?`) and members of the body; `*`: required. Errors: [errors](errors.md).",
    ...sections,
    '## Headers of a request to a model',
    headers(operations),
  ].join('\n\n');
}

/** The operations, in the document's order. @throws ZodError if it is not our OpenAPI document */
async function allOperations(): Promise<Operation[]> {
  const { paths } = documentSchema.parse(JSON.parse(await openApiText()));
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, method, path })),
  );
}

function takes({ parameters, requestBody }: Operation): string {
  const query = parameters.filter((one) => one.in === 'query').map(({ name }) => code(`?${name}`));
  const bodies = Object.values(requestBody?.content ?? {}).flatMap(({ schema: { properties = {}, required = [] } }) =>
    Object.keys(properties).map((name) => `${code(name)}${required.includes(name) ? '*' : ''}`),
  );
  return [...query, ...bodies].join(' ');
}

function needs({ description }: Operation): string {
  return description.replace(/^Needs (.*)\.$/, '$1');
}

function headers(operations: readonly Operation[]): string {
  const chat = operations.find(({ path }) => path === '/v1/chat/completions');
  const rows = (chat?.parameters ?? [])
    .filter((one) => one.in === 'header')
    .map(({ name, description = '' }) => [code(name), description]);
  return markdownTable(['header', 'meaning'], rows);
}
