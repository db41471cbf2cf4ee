import clsx from 'clsx';
import { type FormEvent, type ReactNode, useState } from 'react';
import { t } from '../texts/index.ts';
import { Button } from './button.tsx';
import { Failure } from './feedback.tsx';

interface FormProps {
  /** What it does: on the button. */
  action: string;
  /** What it throws is shown in the form, and what was typed stays. */
  submit: (filled: Filled) => Promise<unknown>;
  /** Absent: there is nothing to close. */
  close?: (() => void) | undefined;
  children: ReactNode;
}

/** The buttons stay in sight while a long form scrolls in its dialogue. */
const IN_DIALOG = 'sticky -bottom-5 z-10 -mx-5 -mb-5 border-line border-t bg-raised px-5 py-3';

/** Fields in two columns, then its error, then its buttons. It closes when `submit` is through. */
export function Form({ action, submit, close, children }: FormProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const onSubmit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const filled = new Filled(new FormData(event.currentTarget));
    setBusy(true);
    setError(undefined);
    try {
      await submit(filled);
      close?.();
    } catch (cause) {
      setError(cause);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void onSubmit(event)} className="grid gap-4 sm:grid-cols-2">
      {children}
      {error !== undefined && (
        <div className={WIDE}>
          <Failure error={error} />
        </div>
      )}
      <div className={clsx('flex flex-wrap justify-end gap-2', WIDE, close !== undefined && IN_DIALOG)}>
        {close !== undefined && <Button onClick={close}>{t.common.cancel}</Button>}
        <Button type="submit" kind="primary" disabled={busy}>
          {action}
        </Button>
      </div>
    </form>
  );
}

/** Both columns of a form. */
export const WIDE = 'sm:col-span-2';

/** What was typed into a form, by the names of its fields. */
export class Filled {
  readonly #form: FormData;

  constructor(form: FormData) {
    this.#form = form;
  }

  text(name: string): string {
    return String(this.#form.get(name) ?? '').trim();
  }

  /** Null: the field is empty. */
  optional(name: string): string | null {
    return this.text(name) || null;
  }

  /** Null: the field is empty. */
  number(name: string): number | null {
    return this.text(name) === '' ? null : Number(this.text(name));
  }

  checked(name: string): boolean {
    return this.#form.has(name);
  }

  /** The checked boxes of one name. */
  choices<T extends string>(name: string, of: readonly T[]): T[] {
    const chosen = this.#form.getAll(name);
    return of.filter((one) => chosen.includes(one));
  }

  /** Words between commas or line ends; null: the field is empty. */
  list(name: string): string[] | null {
    const words = this.text(name)
      .split(/[,\n]/)
      .map((word) => word.trim())
      .filter((word) => word !== '');
    return words.length === 0 ? null : words;
  }

  /** Lines of the form `name = value`; null: the field is empty. @throws Error for a line of another form */
  pairs(name: string): [string, string][] | null {
    const lines = this.text(name)
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '');
    if (lines.length === 0) return null;
    return lines.map((line) => {
      const at = line.indexOf('=');
      const [key, value] = [line.slice(0, Math.max(0, at)).trim(), line.slice(at + 1).trim()];
      if (key === '' || value === '') throw new Error(t.form.noPair(line));
      return [key, value];
    });
  }
}

interface CheckboxProps {
  name: string;
  label: string;
  hint?: string;
  value?: string;
  defaultChecked?: boolean;
}

export function Checkbox({ name, label, hint, value, defaultChecked = false }: CheckboxProps) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input
        type="checkbox"
        name={name}
        {...(value !== undefined && { value })}
        defaultChecked={defaultChecked}
        className="mt-0.5 size-4 accent-accent"
      />
      <span className="flex flex-col">
        {label}
        {hint !== undefined && <small className="text-muted text-xs">{hint}</small>}
      </span>
    </label>
  );
}

/** Fields that belong together. */
export function Fields({ legend, hint, children }: { legend: string; hint?: string; children: ReactNode }) {
  return (
    <fieldset className={WIDE}>
      <legend className="w-full border-line border-t pt-4 pb-3 font-semibold text-sm">
        {legend}
        {hint !== undefined && <small className="block font-normal text-muted text-xs">{hint}</small>}
      </legend>
      <div className="grid gap-4 sm:grid-cols-2">{children}</div>
    </fieldset>
  );
}

/** Fields that most people leave alone, behind a click. They are sent whether they are shown or not. */
export function MoreFields({ title, children }: { title: string; children: ReactNode }) {
  return (
    <details className={`border-line border-t pt-4 ${WIDE}`}>
      <summary className="cursor-pointer font-semibold text-sm">{title}</summary>
      <div className="grid gap-4 pt-4 sm:grid-cols-2">{children}</div>
    </details>
  );
}
