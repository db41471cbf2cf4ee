import { type ChangeEvent, useRef, useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { Weights } from '../../api/resources.ts';
import { t } from '../../texts/index.ts';
import { Button, IconButton } from '../../ui/button.tsx';
import { Field, Input, Select } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { Plus, X } from '../../ui/icons.ts';
import { emptyRule, NAMES, REQUEST_CLASS_OPTIONS, type Rule, ruleOf, written } from './weight-rules.ts';

const texts = t.routing.weightsForm;
/** Maximum number of rules that the gateway accepts. */
const RULES_MAX = 500;

const isSame = (a: Weights, b: Weights) => JSON.stringify(a) === JSON.stringify(b);

interface WeightsDialogProps {
  model: string;
  weights: Weights;
  saved: () => unknown;
  close: () => void;
}

export function WeightsDialog({ model, weights, saved, close }: WeightsDialogProps) {
  const next = useRef(weights.length);
  const [loaded] = useState<Rule[]>(() =>
    weights.length === 0 ? [emptyRule(-1)] : weights.map((rule, key) => ({ ...emptyRule(key), ...written(rule) })),
  );
  const [rules, setRules] = useState(loaded);
  const at = { params: { path: { model } } };
  const submit = async () => {
    const wanted = rules.map(ruleOf);
    if (isSame(wanted, loaded.map(ruleOf))) return;
    const stored = (await gateway.GET('/admin/routing')).data?.data.find((one) => one.model === model);
    // Rules in a list have no names, so two concurrent changes cannot be merged.
    if (!isSame(stored?.weights ?? [], weights)) throw new Error(t.form.changedElsewhere);
    if (rules.length === 0) await gateway.DELETE('/admin/routing/{model}', at);
    else {
      // The planner writes the kinds of a model. A PUT without them would delete them.
      await gateway.PUT('/admin/routing/{model}', { ...at, body: { weights: wanted, kinds: stored?.kinds ?? [] } });
    }
  };
  const change = (key: number, name: keyof Rule, value: string) =>
    setRules(rules.map((rule) => (rule.key === key ? { ...rule, [name]: value } : rule)));
  return (
    <FormDialog title={texts.title(model)} submit={submit} saved={saved} close={close} size="large">
      <p className={`text-muted text-sm ${WIDE}`}>{texts.about}</p>
      {rules.map((rule, n) => (
        <RuleFields
          key={rule.key}
          n={n + 1}
          rule={rule}
          change={(name, value) => change(rule.key, name, value)}
          remove={() => setRules(rules.filter((one) => one !== rule))}
        />
      ))}
      <div className={WIDE}>
        <Button
          size="small"
          disabled={rules.length >= RULES_MAX}
          onClick={() => setRules([...rules, emptyRule(next.current++)])}
        >
          <Plus className="size-3.5" aria-hidden />
          {texts.add}
        </Button>
      </div>
    </FormDialog>
  );
}

interface RuleFieldsProps {
  n: number;
  rule: Rule;
  change: (name: keyof Rule, value: string) => void;
  remove: () => void;
}

function RuleFields({ n, rule, change, remove }: RuleFieldsProps) {
  const on = (name: keyof Rule) => (event: ChangeEvent<HTMLInputElement | HTMLSelectElement>) =>
    change(name, event.currentTarget.value);
  return (
    <fieldset className={`rounded-md border border-line p-3 pt-1 ${WIDE}`}>
      <legend className="px-1 font-medium text-sm">{texts.rule(n)}</legend>
      <div className="flex items-end gap-2">
        <div className="grid flex-1 grid-cols-2 gap-3 md:grid-cols-6">
          {NAMES.map((name) => (
            <Field key={name} label={texts[name]}>
              {(id) => <Input id={id} value={rule[name]} onChange={on(name)} placeholder={texts.any} />}
            </Field>
          ))}
          <Field label={texts.class}>
            {(id) => (
              <Select id={id} value={rule.class} onChange={on('class')}>
                <option value="">{texts.anyClass}</option>
                {REQUEST_CLASS_OPTIONS.map((one) => (
                  <option key={one} value={one}>
                    {texts.classes[one]}
                  </option>
                ))}
              </Select>
            )}
          </Field>
          <Field label={texts.weight}>
            {(id) => (
              <Input
                id={id}
                type="number"
                min="0"
                max="1000000"
                step="any"
                required
                value={rule.weight}
                onChange={on('weight')}
              />
            )}
          </Field>
        </div>
        <IconButton label={texts.remove(n)} onClick={remove}>
          <X />
        </IconButton>
      </div>
    </fieldset>
  );
}
