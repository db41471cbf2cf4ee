import { t } from '../texts/index.ts';
import type { Schema } from './document.ts';

const texts = t.apiReference;

/** Nesting that is shown. Deeper members are in /openapi.json. */
const DEPTH_MAX = 6;

/** The members of an object, each with its type, its bounds and its own members below it. */
export function SchemaView({ schema, depth = 0 }: { schema: Schema; depth?: number }) {
  const { properties, items } = memberful(schema);
  if (items !== undefined) return <SchemaView schema={items} depth={depth} />;
  const names = Object.entries(properties ?? {});
  if (names.length === 0) return depth === 0 ? <p className="text-sm">{typeWords(schema)}</p> : null;
  const required = new Set(memberful(schema).required);
  return (
    <ul className="flex flex-col divide-y divide-line">
      {names.map(([name, member]) => (
        <li key={name} className="flex flex-col gap-1 py-2 text-sm">
          <p className="flex flex-wrap items-baseline gap-x-2">
            <code className="font-medium">{name}</code>
            <span className="text-muted text-xs">{typeWords(member)}</span>
            {required.has(name) && <span className="text-bad text-xs">{texts.required}</span>}
          </p>
          {member.description !== undefined && <p className="text-muted">{member.description}</p>}
          <Bounds of={member} />
          {hasMembers(member) &&
            (depth >= DEPTH_MAX ? (
              <p className="text-muted text-xs">{texts.deeper}</p>
            ) : (
              <div className="border-line border-l pl-4">
                <SchemaView schema={member} depth={depth + 1} />
              </div>
            ))}
        </li>
      ))}
    </ul>
  );
}

export function Bounds({ of }: { of: Schema }) {
  const { minimum, maximum, maxLength, maxItems, default: value, enum: values } = plain(of);
  const words = [
    values !== undefined && texts.oneOf(values.map(String).join(', ')),
    minimum !== undefined && texts.atLeast(minimum),
    maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER && texts.atMost(maximum),
    maxLength !== undefined && texts.longest(maxLength),
    maxItems !== undefined && texts.most(maxItems),
    value !== undefined && texts.byDefault(JSON.stringify(value)),
  ].filter((one) => one !== false);
  return words.length === 0 ? null : <p className="text-muted text-xs [overflow-wrap:anywhere]">{words.join('; ')}</p>;
}

const choicesOf = ({ anyOf, oneOf }: Schema) => (anyOf ?? oneOf ?? []).filter(({ type }) => type !== 'null');

/** Reduces “this or null” to “this”. */
function plain(schema: Schema): Schema {
  const [choice, ...others] = choicesOf(schema);
  return choice !== undefined && others.length === 0 ? { ...choice, default: schema.default } : schema;
}

/** The schema that contains the members: of “this or null” it is “this”, of a record it is the schema of the values. */
function memberful(schema: Schema): Schema {
  const one = plain(schema);
  const values = one.additionalProperties;
  if (one.properties === undefined && typeof values === 'object') return memberful(values);
  return one;
}

function hasMembers(schema: Schema): boolean {
  const { properties, items } = memberful(schema);
  return properties !== undefined || (items !== undefined && hasMembers(items));
}

/** A type in words, for example `list of strings or null`. */
export function typeWords(schema: Schema): string {
  const { anyOf, oneOf, type, format, additionalProperties, const: value } = schema;
  const choices = anyOf ?? oneOf;
  if (choices !== undefined) return [...new Set(choices.map(typeWords))].join(texts.or);
  if (value !== undefined) return JSON.stringify(value);
  const types = typeof type === 'string' ? [type] : (type ?? []);
  if (types.length === 0) return texts.any;
  return types
    .map((one) => {
      if (one === 'array') return texts.listOf(schema.items === undefined ? texts.any : typeWords(schema.items));
      if (one === 'object' && typeof additionalProperties === 'object')
        return texts.recordOf(typeWords(additionalProperties));
      return one === 'string' && format !== undefined ? format : one;
    })
    .join(texts.or);
}
