/** Fields that name a user, a project or a provider: chosen by name, sent by id. */
import { useQuery } from '@tanstack/react-query';
import { useCallback } from 'react';
import { gateway } from '../api/client.ts';
import { t } from '../texts/index.ts';
import { Field, Select } from '../ui/field.tsx';

/** Maximum length of a list to choose from; the gateway returns a hundred rows at a time. */
const OPTIONS_MAX = 1_000;
const PAGE_ROWS = 100;

interface Option {
  id: string;
  name: string;
}

interface Page {
  data: (Option & { disabled_at?: string | null; deleted_at?: string | null })[];
  has_more: boolean;
}
type Load = (query: { limit: number; after?: string }) => Promise<{ data?: Page | undefined }>;

/** The enabled rows, by name. */
async function readOptions(load: Load): Promise<Option[]> {
  const options: Option[] = [];
  let after: string | undefined;
  do {
    const { data } = await load({ limit: PAGE_ROWS, ...(after !== undefined && { after }) });
    for (const one of data?.data ?? []) if (!one.disabled_at && !one.deleted_at) options.push(one);
    after = data?.has_more ? data.data.at(-1)?.id : undefined;
  } while (after !== undefined && options.length < OPTIONS_MAX);
  return options.sort((a, b) => a.name.localeCompare(b.name));
}

const LOADS = {
  users: ((query) => gateway.GET('/admin/users', { params: { query } })) satisfies Load,
  projects: ((query) => gateway.GET('/admin/projects', { params: { query } })) satisfies Load,
  providers: ((query) => gateway.GET('/admin/providers', { params: { query } })) satisfies Load,
} as const;
type Referenced = keyof typeof LOADS;

/** The options; undefined while they load. `enabled`: the user may see the list. */
export function useOptions(of: Referenced, enabled = true): readonly Option[] | undefined {
  return useQuery({ queryKey: ['options', of], queryFn: () => readOptions(LOADS[of]), enabled }).data;
}

/** Names by id; for an unknown id, the id. */
export function useNames(of: Referenced, enabled = true): (id: string | null) => string {
  const options = useOptions(of, enabled);
  return useCallback(
    (id) => (id === null ? t.common.none : (options?.find((one) => one.id === id)?.name ?? id)),
    [options],
  );
}

interface ReferenceProps {
  of: Referenced;
  name: string;
  label: string;
  hint?: string;
  /** Id of the row that is selected at first. */
  defaultValue?: string | null;
  required?: boolean;
  /** Label of the option for no choice. */
  none?: string;
}

export function Reference({ of, name, label, hint, defaultValue, required = false, none }: ReferenceProps) {
  const options = useOptions(of);
  // The selected row was removed, or the options have not loaded yet. Saving the form meanwhile must keep its id.
  const isMissing = defaultValue != null && options?.some(({ id }) => id === defaultValue) !== true;
  return (
    <Field label={label} {...(hint !== undefined && { hint })}>
      {(id) => (
        // A browser keeps a default only for existing options, so the field is rebuilt when they arrive.
        <Select key={String(options?.length)} id={id} name={name} defaultValue={defaultValue ?? ''} required={required}>
          <option value="">{none ?? (required ? t.form.choose : t.form.noChoice)}</option>
          {isMissing && <option value={defaultValue}>{defaultValue}</option>}
          {options?.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name === one.id ? one.id : of === 'providers' ? `${one.name} (${one.id})` : one.name}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}
