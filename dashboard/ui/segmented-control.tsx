import { Toggle } from '@base-ui/react/toggle';
import { ToggleGroup } from '@base-ui/react/toggle-group';

interface SegmentsProps<T extends string> {
  /** Name of the choice, for screen readers. */
  label: string;
  value: T;
  options: readonly { value: T; label: string }[];
  choose: (value: T) => void;
}

/** A few choices next to each other. One is selected. */
export function Segments<T extends string>({ label, value, options, choose }: SegmentsProps<T>) {
  return (
    <ToggleGroup
      aria-label={label}
      value={[value]}
      onValueChange={([next]: T[]) => next !== undefined && choose(next)}
      className="inline-flex max-w-full self-start overflow-x-auto rounded-md border border-line bg-sunken p-0.5"
    >
      {options.map((option) => (
        <Toggle
          key={option.value}
          value={option.value}
          className="h-8 whitespace-nowrap rounded-sm px-3 text-muted text-sm hover:text-ink data-pressed:bg-surface data-pressed:font-medium data-pressed:text-ink data-pressed:shadow-raised"
        >
          {option.label}
        </Toggle>
      ))}
    </ToggleGroup>
  );
}
