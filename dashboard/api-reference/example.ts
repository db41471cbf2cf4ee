/** An example value that a schema allows, as the body of a first request. */
import type { Schema } from './document.ts';

/** Deeper members are left out: the reader adds them. */
const DEPTH_MAX = 5;

export function exampleOf(schema: Schema, depth = 0): unknown {
  if (schema.examples !== undefined && schema.examples.length > 0) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  const [choice] = (schema.anyOf ?? schema.oneOf ?? []).filter(({ type }) => type !== 'null');
  if (choice !== undefined) return exampleOf(choice, depth);
  const types = typeof schema.type === 'string' ? [schema.type] : (schema.type ?? []);
  switch (types.find((type) => type !== 'null')) {
    case 'object':
      return depth >= DEPTH_MAX ? {} : objectOf(schema, depth);
    case 'array':
      return schema.items === undefined || depth >= DEPTH_MAX ? [] : [exampleOf(schema.items, depth + 1)];
    case 'integer':
    case 'number':
      return schema.minimum ?? 1;
    case 'boolean':
      return true;
    case 'string':
      return '';
    default:
      return null;
  }
}

/** The required members, or all members if none is required. */
function objectOf({ properties = {}, required = [] }: Schema, depth: number): Record<string, unknown> {
  const names = required.length === 0 && depth === 0 ? Object.keys(properties) : required;
  return Object.fromEntries(
    names.flatMap((name) => {
      const member = properties[name];
      return member === undefined ? [] : [[name, exampleOf(member, depth + 1)]];
    }),
  );
}
