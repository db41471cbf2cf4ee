import { BUILT_IN_POLICIES, type BuiltInPolicy } from '../../shared/routing/policies/built-in-policies.ts';
import { t } from '../texts/index.ts';
import { Field, Select } from '../ui/field.tsx';
import type { FilledFields } from '../ui/form-values.ts';

interface PolicySelectProps {
  name: string;
  /** The stored policy; null: none is stored here. */
  defaultValue: string | null;
  /** The policy that applies if none is set. */
  none: string;
}

/** Chooses the routing policy. If the current one is an operator's addition, it stays selectable. */
export function PolicySelect({ name, defaultValue, none }: PolicySelectProps) {
  const known: readonly string[] = BUILT_IN_POLICIES;
  const own = defaultValue !== null && !known.includes(defaultValue) ? [defaultValue] : [];
  return (
    <Field label={t.narrowing.policy}>
      {(id) => (
        <Select id={id} name={name} defaultValue={defaultValue ?? ''}>
          <option value="">{none}</option>
          {[...known, ...own].map((policy) => (
            <option key={policy} value={policy}>
              {policy}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

/** The selected policy; null: none is selected. */
export function policyFrom(filled: FilledFields): BuiltInPolicy | null {
  const name = filled.text('policy');
  return isPolicy(name) ? name : null;
}

/** The contract has only shipped policies. An operator's addition passes too: the gateway refuses unknown names. */
function isPolicy(name: string): name is BuiltInPolicy {
  return name !== '';
}
