/** Users in the form of SCIM 2.0 (RFC 7643 §4.1), and changes of them (RFC 7644 §3.5.2). Pure. */
import * as z from 'zod';
import { emailSchema } from '../../http/common-schemas.ts';
import { ScimError } from './scim-error.ts';

export const USER_SCHEMA = 'urn:ietf:params:scim:schemas:core:2.0:User';
/** Operations of one PATCH. Identity providers send one or two. */
const OPERATIONS_MAX = 100;
const NAME_MAX = 200;
const text = z.string().max(1_024);

/** Entra sends "True" and "False" in some requests. */
const boolean = z.union([
  z.boolean(),
  z.enum(['true', 'True', 'false', 'False']).transform((value) => value.toLowerCase() === 'true'),
]);
const emailsSchema = z.array(z.looseObject({ value: text, primary: boolean.optional() })).max(50);
const attributes = {
  userName: text.min(1),
  externalId: text.nullish(),
  displayName: text.nullish(),
  name: z.looseObject({ formatted: text.nullish(), givenName: text.nullish(), familyName: text.nullish() }).nullish(),
  emails: emailsSchema.nullish(),
  active: boolean.optional(),
};

/** A user as identity providers send it. Other attributes are ignored (RFC 7644 §3.3). */
export const resourceSchema = z.looseObject(attributes);
const valueSchema = z.looseObject(attributes).partial();

export const patchSchema = z.looseObject({
  Operations: z
    .array(
      z.looseObject({
        op: z
          .string()
          .transform((op) => op.toLowerCase())
          .pipe(z.enum(['add', 'replace', 'remove'])),
        path: z.string().max(256).optional(),
        value: z.unknown().optional(),
      }),
    )
    .min(1)
    .max(OPERATIONS_MAX),
});

/** What this gateway stores of a user. */
export interface ScimChange {
  name?: string;
  email?: string | null;
  disabled?: boolean;
  /** The identifier at the identity provider, which cannot change. */
  externalId?: string;
}

type Attributes = z.infer<typeof valueSchema>;

/** Returns what the attributes say. Absent ones say nothing. */
export function changeOf({ userName, externalId, displayName, name, emails, active }: Attributes): ScimChange {
  const shown = displayName ?? name?.formatted ?? fullName(name);
  const address = emails?.find(({ primary }) => primary === true)?.value ?? emails?.[0]?.value ?? userName;
  return {
    ...(shown !== undefined && { name: shown.slice(0, NAME_MAX) }),
    ...(isEmail(address) && { email: address }),
    ...(active !== undefined && { disabled: !active }),
    ...(externalId != null && { externalId }),
  };
}

function fullName(name: Attributes['name']): string | undefined {
  const parts = [name?.givenName, name?.familyName].filter((part) => part != null && part !== '');
  return parts.length === 0 ? undefined : parts.join(' ');
}

function isEmail(address: string | undefined): address is string {
  return emailSchema.safeParse(address).success;
}

/** Attributes of a path that this gateway stores, as a partial resource with `value`. */
const PATHS: Readonly<Record<string, (value: unknown) => unknown>> = {
  active: (active) => ({ active }),
  username: (userName) => ({ userName }),
  externalid: (externalId) => ({ externalId }),
  displayname: (displayName) => ({ displayName }),
  'name.formatted': (formatted) => ({ name: { formatted } }),
  emails: (emails) => ({ emails }),
};
/** Such as `emails[type eq "work"].value`. */
const EMAIL_VALUE = /^emails\[[^\]]{0,128}\]\.value$/i;

/** Returns the change that operations make. Attributes that this gateway does not store are ignored. */
export function changeOfOperations({ Operations }: z.infer<typeof patchSchema>): ScimChange {
  const changes = Operations.map(({ op, path, value }) => {
    const attribute = path?.replace(`${USER_SCHEMA}:`, '');
    if (op === 'remove') return removal(attribute);
    if (attribute === undefined) return parsed(value);
    if (EMAIL_VALUE.test(attribute)) return parsed({ emails: [{ value }] });
    const partial = PATHS[attribute.toLowerCase()];
    return partial === undefined ? {} : parsed(partial(value));
  });
  return Object.assign({}, ...changes);
}

/** @throws ScimError 400 noTarget for a removal without a path (RFC 7644 §3.5.2.2) */
function removal(attribute: string | undefined): ScimChange {
  if (attribute === undefined) throw new ScimError(400, 'A remove needs a path.', 'noTarget');
  const name = attribute.toLowerCase();
  if (name === 'active') return { disabled: true };
  return name === 'emails' || EMAIL_VALUE.test(attribute) ? { email: null } : {};
}

function parsed(value: unknown): ScimChange {
  const read = valueSchema.safeParse(value);
  if (read.success) return changeOf(read.data);
  const [issue] = read.error.issues;
  throw new ScimError(400, `${issue?.path.join('.') ?? 'value'}: ${issue?.message ?? 'is not valid'}`, 'invalidValue');
}

/** A user as the admin API shows it. */
export interface UserView {
  id: string;
  name: string;
  email: string | null;
  subject: string | null;
  created_at: string;
  disabled_at: string | null;
}

/** @param base URL of the SCIM service */
export function resourceOf(user: UserView, base: string) {
  const { id, name, email, subject } = user;
  return {
    schemas: [USER_SCHEMA],
    id,
    ...(subject !== null && { externalId: subject }),
    userName: email ?? subject ?? id,
    displayName: name,
    name: { formatted: name },
    ...(email !== null && { emails: [{ value: email, primary: true, type: 'work' }] }),
    active: user.disabled_at === null,
    meta: { resourceType: 'User', created: user.created_at, location: `${base}/Users/${id}` },
  };
}

/** The attribute and the value of a filter, in lower case. Only `ATTRIBUTE eq "VALUE"` is supported. */
const FILTER =
  /^\s*(userName|externalId|id|emails(?:\.value|\[[^\]]{0,128}\]\.value)?)\s+eq\s+("(?:[^"\\]|\\.)*")\s*$/i;

/** @throws ScimError 400 invalidFilter */
export function parseFilter(filter: string): { attribute: 'username' | 'externalid' | 'id' | 'email'; value: string } {
  const [, name = '', quoted = '""'] = FILTER.exec(filter) ?? [];
  const value: unknown = tryJson(quoted);
  const attribute = name.toLowerCase();
  if (typeof value !== 'string' || attribute === '')
    throw new ScimError(400, 'Only filters such as userName eq "ada@example.org" are supported.', 'invalidFilter');
  if (attribute === 'username' || attribute === 'externalid' || attribute === 'id') return { attribute, value };
  return { attribute: 'email', value };
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
