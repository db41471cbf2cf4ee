import { Select } from '@base-ui/react/select';
import clsx from 'clsx';
import type { ModelLoad } from '../api/schemas.ts';
import type { CatalogueModel } from '../parts/model-catalog.ts';
import { startableWords } from '../parts/startable-models.ts';
import { t } from '../texts/index.ts';
import { Check, ChevronDown } from '../ui/icons.ts';

interface ModelPickerProps {
  label: string;
  value: string;
  models: readonly CatalogueModel[];
  loads: ReadonlyMap<string, ModelLoad>;
  choose: (model: string) => void;
}

const DOTS = { good: 'bg-good', wait: 'bg-wait', bad: 'bg-bad' } as const;

/** Chooses the model to ask, and shows its current state. */
export function ModelPicker({ label, value, models, loads, choose }: ModelPickerProps) {
  const known = models.some(({ id }) => id === value) || value === '' ? models : [...models, undefined];
  return (
    <Select.Root value={value} onValueChange={(next: string | null) => next !== null && choose(next)}>
      <Select.Trigger
        aria-label={label}
        className="inline-flex h-9 min-w-0 max-w-full items-center gap-1.5 rounded-md px-2.5 font-semibold hover:bg-hover"
      >
        <span className="truncate">{value || t.chat.noModel}</span>
        <Select.Icon>
          <ChevronDown className="size-4 text-muted" />
        </Select.Icon>
      </Select.Trigger>
      <Select.Portal>
        <Select.Positioner sideOffset={4} align="start" alignItemWithTrigger={false} className="z-40">
          <Select.Popup className="appear max-h-80 max-w-[92vw] overflow-y-auto rounded-md border border-line bg-raised p-1 shadow-raised outline-none">
            {known.map((model) => {
              const id = model?.id ?? value;
              const state = modelState(model, loads.get(id));
              return (
                <Select.Item
                  key={id}
                  value={id}
                  className="flex cursor-default items-center gap-3 rounded-sm py-2 pr-3 pl-2 outline-none data-highlighted:bg-hover"
                >
                  <span className="flex size-4 shrink-0">
                    <Select.ItemIndicator>
                      <Check className="size-4" />
                    </Select.ItemIndicator>
                  </span>
                  <span className="flex min-w-0 flex-col">
                    <Select.ItemText className="truncate font-medium text-sm">{id}</Select.ItemText>
                    <span className="flex items-center gap-1.5 text-muted text-xs">
                      <span className={clsx('size-1.5 rounded-full', DOTS[state.kind])} aria-hidden />
                      {state.text}
                    </span>
                  </span>
                </Select.Item>
              );
            })}
          </Select.Popup>
        </Select.Positioner>
      </Select.Portal>
    </Select.Root>
  );
}

interface ModelState {
  kind: 'good' | 'wait' | 'bad';
  text: string;
}

/**
 * Describes in a word or two how a request to the model would be served now. `load` undefined: the model's engines
 * report no load, because they are idle.
 */
function modelState(model: CatalogueModel | undefined, load: ModelLoad | undefined): ModelState {
  if (model === undefined) return { kind: 'bad', text: t.modelStates.notServed };
  if (model.serving > 0) {
    if (load !== undefined && load.waiting > 0) return { kind: 'wait', text: t.modelStates.busy(load.waiting) };
    if (load !== undefined && load.running > 0) return { kind: 'good', text: t.modelStates.running(load.running) };
    return { kind: 'good', text: t.modelStates.idle };
  }
  if (model.start !== undefined)
    return { kind: model.start.state === 'resting' ? 'bad' : 'wait', text: startableWords(model.start) };
  if (model.loading > 0) return { kind: 'wait', text: t.modelStates.loading };
  return { kind: 'bad', text: model.silent > 0 ? t.modelStates.silent : t.modelStates.notServed };
}
