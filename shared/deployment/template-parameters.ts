/**
 * Parameters of a template. They are typed, and restricted to what the node's operator allows. The agent decides with
 * `bindParameters`, and planners use the same function to find a template that would be accepted.
 */
import * as z from 'zod';
import { DeploymentError } from './deployment-error.ts';

const NAME_PATTERN = /^[a-z][a-z0-9_]{0,31}$/;
export const TEMPLATE_NAME_PATTERN = /^[a-z0-9][a-z0-9._-]{0,62}$/;
export const templateNameSchema = z
  .string()
  .regex(TEMPLATE_NAME_PATTERN, 'the name of a template consists of lower-case letters, digits and . _ -');

/** Maximum number of parameters per template, and of allowed values per parameter. */
const PARAMETERS_MAX = 16;
const ALLOWED_MAX = 128;

/**
 * Allowed values. A value becomes one argument of a command, or a part of one, and some templates pass it to a shell or
 * a path. So it begins with a letter or a digit, which cannot begin an option, and contains no character that is
 * special to a shell.
 */
const SAFE = /^[A-Za-z0-9][A-Za-z0-9._/:@=,+-]{0,255}$/;

const valueSchema = z.union([z.string().max(256), z.number()]);
export const parametersSchema = z
  .record(z.string().regex(NAME_PATTERN), valueSchema)
  .refine((given) => Object.keys(given).length <= PARAMETERS_MAX, `at most ${PARAMETERS_MAX} parameters`)
  .meta({ maxProperties: PARAMETERS_MAX });
/** Values of parameters, as in the order. */
export type Parameters = z.infer<typeof parametersSchema>;

/**
 * Pattern of allowed values. `org/*` matches every value that begins with `org/`. A pattern without `*` matches only
 * itself.
 */
const patternSchema = z
  .string()
  .min(1)
  .max(256)
  .regex(/^[^*]*\*?$/, '* is allowed only at the end')
  .refine(
    (pattern) => pattern === '*' || SAFE.test(pattern.replace(/\*$/, '')),
    'has characters that are not allowed in a value',
  );

const integer = z.number().int().min(-1_000_000_000_000).max(1_000_000_000_000);

const parameterSpecSchema = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('string'),
      allow: z.array(patternSchema).min(1).max(ALLOWED_MAX),
      default: z.string().optional(),
    }),
    z.strictObject({
      type: z.literal('integer'),
      allow: z.array(integer).min(1).max(ALLOWED_MAX).optional(),
      min: integer.optional(),
      max: integer.optional(),
      default: integer.optional(),
    }),
  ])
  .superRefine((spec, context) => {
    const fail = (message: string) => context.addIssue({ code: 'custom', message });
    if (spec.type === 'integer' && spec.allow === undefined && (spec.min === undefined || spec.max === undefined))
      fail('an integer needs `allow`, or both `min` and `max`');
    const problem = spec.default === undefined ? undefined : problemOf(spec, spec.default);
    if (problem !== undefined) fail(`its default ${problem}`);
  });
type ParameterSpec = z.infer<typeof parameterSpecSchema>;

export const parameterSpecsSchema = z
  .record(
    z.string().regex(NAME_PATTERN, 'the name of a parameter consists of lower-case letters, digits and _'),
    parameterSpecSchema,
  )
  .refine((specs) => Object.keys(specs).length <= PARAMETERS_MAX, `at most ${PARAMETERS_MAX} parameters`);
type ParameterSpecs = z.infer<typeof parameterSpecsSchema>;

/**
 * Checks the values and returns them as they go into the command. If any is not valid, one error names all problems.
 * @throws DeploymentError `bad_parameters`
 */
export function bindParameters(specs: ParameterSpecs, given: Parameters): Record<string, string> {
  const problems: string[] = [];
  for (const name of Object.keys(given))
    if (!Object.hasOwn(specs, name))
      problems.push(`unknown parameter ${name} (known: ${Object.keys(specs).join(', ') || 'none'})`);
  const bound: [string, string][] = [];
  for (const [name, spec] of Object.entries(specs)) {
    const value = Object.hasOwn(given, name) ? given[name] : spec.default;
    if (value === undefined) {
      problems.push(`${name} is missing`);
      continue;
    }
    const problem = problemOf(spec, value);
    if (problem !== undefined) problems.push(`${name} ${problem}`);
    else bound.push([name, String(value)]);
  }
  if (problems.length > 0) throw new DeploymentError('bad_parameters', problems.join('; '));
  return Object.fromEntries(bound);
}

function problemOf(spec: ParameterSpec, value: string | number): string | undefined {
  return spec.type === 'string' ? problemOfText(spec.allow, value) : problemOfInteger(spec, value);
}

function problemOfText(allow: readonly string[], value: string | number): string | undefined {
  if (typeof value !== 'string') return 'must be a string';
  const shown = JSON.stringify(value.slice(0, 80));
  if (!SAFE.test(value)) return `${shown} has characters that are not allowed in a command`;
  // Paths with `..` are refused. Otherwise `org/*` would allow paths that leave `org`.
  if (value.split('/').some((part) => part === '..' || part === '.'))
    return `${shown} must not contain the path segment . or ..`;
  const fits = allow.some((pattern) =>
    pattern.endsWith('*') ? value.startsWith(pattern.slice(0, -1)) : value === pattern,
  );
  return fits ? undefined : `${shown} is not allowed (allowed: ${listed(allow)})`;
}

function problemOfInteger(
  spec: Extract<ParameterSpec, { type: 'integer' }>,
  value: string | number,
): string | undefined {
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) return 'must be a whole number';
  const { allow, min, max } = spec;
  if (allow !== undefined && !allow.includes(value)) return `${value} is not allowed (allowed: ${listed(allow)})`;
  if (min !== undefined && value < min) return `${value} is below the minimum ${min}`;
  if (max !== undefined && value > max) return `${value} is above the maximum ${max}`;
  return undefined;
}

/** Maximum number of allowed values that a message lists. */
const LISTED = 8;

function listed(allow: readonly (string | number)[]): string {
  return `${allow.slice(0, LISTED).join(', ')}${allow.length > LISTED ? ` and ${allow.length - LISTED} more` : ''}`;
}
