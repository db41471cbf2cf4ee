import clsx from 'clsx';
import { type ComponentProps, type ReactNode, useId } from 'react';

interface FieldProps {
  label: string;
  hint?: ReactNode;
  /** Why the value is refused. */
  error?: string | undefined;
  className?: string;
  children: (id: string) => ReactNode;
}

export function Field({ label, hint, error, className, children }: FieldProps) {
  const id = useId();
  return (
    <div className={clsx('flex min-w-0 flex-col gap-1', className)}>
      <label htmlFor={id} className="font-medium text-sm">
        {label}
      </label>
      {children(id)}
      {hint !== undefined && <small className="text-muted text-xs">{hint}</small>}
      {error !== undefined && <small className="text-bad text-xs">{error}</small>}
    </div>
  );
}

const BOX =
  'w-full min-w-0 rounded-md border border-line-strong bg-surface text-ink placeholder:text-muted disabled:opacity-60';
/** The `read-only` selector also matches selects, so this class is only for text fields. */
const READ_ONLY = 'read-only:bg-sunken';

export function Input({ className, ...rest }: ComponentProps<'input'>) {
  return <input className={clsx(BOX, READ_ONLY, 'h-9 px-3', className)} {...rest} />;
}

export function Textarea({ className, ...rest }: ComponentProps<'textarea'>) {
  return <textarea className={clsx(BOX, READ_ONLY, 'px-3 py-2', className)} {...rest} />;
}

/** The browser's own list: it works best on a phone. */
export function Select({ className, children, ...rest }: ComponentProps<'select'>) {
  return (
    <select className={clsx(BOX, 'h-9 px-2.5', className)} {...rest}>
      {children}
    </select>
  );
}
