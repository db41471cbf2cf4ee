import clsx from 'clsx';
import { type FormEvent, type ReactNode, useRef, useState } from 'react';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { t } from '../texts/index.ts';
import { Button } from './button.tsx';
import { Failure } from './feedback.tsx';
import { FilledFields } from './form-values.ts';

interface FormProps {
  /** The label of its button. */
  action: string;
  /** An error is shown in the form, and the typed values stay. */
  submit: (filled: FilledFields) => Promise<unknown>;
  /** Closes the dialog after `submit`; absent: nothing is to be closed. */
  close?: (() => void) | undefined;
  children: ReactNode;
}

/** The buttons stay visible while a long form scrolls in its dialog. */
const IN_DIALOG = 'sticky -bottom-5 z-10 -mx-5 -mb-5 border-line border-t bg-raised px-5 py-3';

/** Fields in two columns, then the error, then the buttons. It closes after `submit`. */
export function Form({ action, submit, close, children }: FormProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const loaded = useRef<FormData>(undefined);
  const onSubmit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const filled = new FilledFields(form, loaded.current);
    setBusy(true);
    setError(undefined);
    try {
      await submit(filled);
      // The shown values are now stored, so they do not count as changes of the next submit.
      loaded.current = form;
      close?.();
    } catch (cause) {
      setError(cause);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      ref={(form) => {
        if (form !== null) loaded.current ??= new FormData(form);
      }}
      onSubmit={(event) => neverRejects(onSubmit(event))}
      className="grid gap-4 sm:grid-cols-2"
    >
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

/** Spans both columns of a form. */
export const WIDE = 'sm:col-span-2';

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

/** A group of fields. */
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

/** Fields that most users do not change, collapsed. They are sent even if they are hidden. */
export function MoreFields({ title, children }: { title: string; children: ReactNode }) {
  return (
    <details className={`border-line border-t pt-4 ${WIDE}`}>
      <summary className="cursor-pointer font-semibold text-sm">{title}</summary>
      <div className="grid gap-4 pt-4 sm:grid-cols-2">{children}</div>
    </details>
  );
}
