import { Menu as Base } from '@base-ui/react/menu';
import clsx from 'clsx';
import type { ReactElement, ReactNode } from 'react';
import { t } from '../texts/index.ts';
import { Check } from './icons.ts';

const ITEM =
  'flex w-full cursor-default select-none items-center gap-2.5 rounded-sm px-2.5 py-1.5 text-sm outline-none data-disabled:opacity-50 data-highlighted:bg-hover [&_svg]:size-4 [&_svg]:shrink-0';

export function Menu({
  trigger,
  side,
  children,
}: {
  trigger: ReactElement;
  side?: 'top' | 'bottom';
  children: ReactNode;
}) {
  return (
    <Base.Root>
      <Base.Trigger render={trigger} />
      {/* At the end of the document it is outside all landmarks, so it is a landmark itself. */}
      <Base.Portal render={<section aria-label={t.shell.menu} />}>
        <Base.Positioner sideOffset={6} align="start" side={side ?? 'bottom'} className="z-40">
          <Base.Popup className="appear min-w-44 max-w-80 rounded-md border border-line bg-raised p-1 shadow-raised outline-none">
            {children}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}

interface MenuItemProps {
  children: ReactNode;
  onClick: () => void;
  danger?: boolean;
  disabled?: boolean;
}

export function MenuItem({ children, onClick, danger = false, disabled = false }: MenuItemProps) {
  return (
    <Base.Item className={clsx(ITEM, danger && 'text-bad')} onClick={onClick} disabled={disabled}>
      {children}
    </Base.Item>
  );
}

export function MenuLink({ href, children }: { href: string; children: ReactNode }) {
  return (
    <Base.Item className={ITEM} render={<a href={href} />}>
      {children}
    </Base.Item>
  );
}

interface MenuChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; label: string }[];
  choose: (value: T) => void;
}

export function MenuChoice<T extends string>({ label, value, options, choose }: MenuChoiceProps<T>) {
  return (
    <Base.Group>
      <Base.GroupLabel className="px-2.5 pt-1.5 pb-1 text-muted text-xs">{label}</Base.GroupLabel>
      <Base.RadioGroup value={value} onValueChange={(one: T) => choose(one)}>
        {options.map((option) => (
          <Base.RadioItem key={option.value} value={option.value} className={ITEM}>
            <span className="flex size-4 items-center">
              <Base.RadioItemIndicator>
                <Check />
              </Base.RadioItemIndicator>
            </span>
            {option.label}
          </Base.RadioItem>
        ))}
      </Base.RadioGroup>
    </Base.Group>
  );
}

export function MenuRule() {
  return <Base.Separator className="my-1 h-px bg-line" />;
}
