import { SHIPPED_POLICIES, type ShippedPolicy } from '../../shared/routing/policies/shipped.ts';
import { t } from '../texts/index.ts';
import { Field, Select } from '../ui/field.tsx';
import type { FilledFields } from '../ui/filled.ts';

interface PolicySelectProps {
  name: string;
  /** Null: none is set here. */
  defaultValue: string | null;
  /** What holds where none is set. */
  none: string;
}

/** How nodes are chosen. A policy that an operator added stays when it is set. */
export function PolicySelect({ name, defaultValue, none }: PolicySelectProps) {
  const known: readonly string[] = SHIPPED_POLICIES;
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

/** Null: none is set. */
export function policyFrom(filled: FilledFields): ShippedPolicy | null {
  const name = filled.text('policy');
  return isPolicy(name) ? name : null;
}

/** The contract knows only shipped policies. A policy that an operator added passes too: the gateway refuses names it does not know. */
function isPolicy(name: string): name is ShippedPolicy {
  return name !== '';
}
