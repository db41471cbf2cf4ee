import { Tooltip } from '@base-ui/react/tooltip';
import clsx from 'clsx';
import type { ComponentProps, ReactElement, ReactNode } from 'react';

const KINDS = {
  primary: 'bg-accent text-on-accent hover:bg-accent-hover',
  secondary: 'border border-line-strong bg-surface text-ink hover:bg-hover',
  ghost: 'text-ink hover:bg-hover',
  danger: 'bg-bad text-on-bad hover:opacity-90',
} as const;

const SIZES = {
  small: 'h-8 gap-1.5 rounded-sm px-2.5 text-sm',
  medium: 'h-9 gap-2 rounded-md px-3.5 text-base',
} as const;

interface ButtonLook {
  kind?: keyof typeof KINDS;
  size?: keyof typeof SIZES;
}

/** The classes of a button, for links that look like one. */
export function buttonClass({ kind = 'secondary', size = 'medium' }: ButtonLook = {}): string {
  return clsx(
    'inline-flex shrink-0 select-none items-center justify-center whitespace-nowrap font-medium transition-colors',
    'disabled:cursor-not-allowed disabled:opacity-50',
    KINDS[kind],
    SIZES[size],
  );
}

export function Button({ kind, size, className, type = 'button', ...rest }: ComponentProps<'button'> & ButtonLook) {
  const look = { ...(kind && { kind }), ...(size && { size }) };
  return <button type={type} className={clsx(buttonClass(look), className)} {...rest} />;
}

interface IconButtonProps extends ComponentProps<'button'> {
  /** The action: read aloud, and shown as a tooltip. */
  label: string;
  /** The icon. */
  children?: ReactNode;
  pressed?: boolean;
}

/** A button with only an icon. */
export function IconButton({ label, pressed, className, type = 'button', children, ...rest }: IconButtonProps) {
  return (
    <Tip text={label}>
      <button
        type={type}
        aria-label={label}
        aria-pressed={pressed}
        className={clsx(
          'inline-flex size-8 shrink-0 items-center justify-center rounded-sm text-muted transition-colors',
          'enabled:hover:bg-hover enabled:hover:text-ink disabled:cursor-not-allowed disabled:opacity-40 [&_svg]:size-4',
          pressed && 'bg-accent-soft text-accent',
          className,
        )}
        {...rest}
      >
        {children}
      </button>
    </Tip>
  );
}

/**
 * A tooltip for an element that has the pointer or the focus. It repeats the element's label and never holds the only
 * copy of any information.
 */
function Tip({ text, children }: { text: string; children: ReactElement<Record<string, unknown>> }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger render={children} />
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={6} className="z-50">
          <Tooltip.Popup className="appear max-w-72 rounded-sm bg-ink px-2 py-1 text-canvas text-xs shadow-raised">
            {text}
          </Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
