/** The fields for a request body that is a form with files (`multipart/form-data`). */
import { t } from '../texts/index.ts';
import { Field, Input } from '../ui/field.tsx';
import type { Schema } from './document.ts';

const PREFIX = 'form ';

const isFile = ({ format }: Schema) => format === 'binary';

export function FormBodyFields({ schema }: { schema: Schema }) {
  return Object.entries(schema.properties ?? {}).map(([name, member]) => (
    <Field
      key={name}
      label={`${name} (${t.apiReference.places.form})`}
      {...(member.description !== undefined && { hint: member.description })}
    >
      {(id) => (
        <Input
          id={id}
          name={`${PREFIX}${name}`}
          type={isFile(member) ? 'file' : 'text'}
          required={schema.required?.includes(name)}
          placeholder={member.enum?.join(', ')}
          spellCheck={false}
          className={isFile(member) ? 'py-1.5' : undefined}
        />
      )}
    </Field>
  ));
}

/** Builds the body from a filled-in form, without empty fields. */
export function formBodyOf(schema: Schema, filled: FormData): FormData {
  const body = new FormData();
  for (const name of Object.keys(schema.properties ?? {})) {
    const value = filled.get(`${PREFIX}${name}`);
    if (value instanceof File ? value.name !== '' : value) body.append(name, value ?? '');
  }
  return body;
}
