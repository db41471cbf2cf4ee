import type { ReactNode } from 'react';
import { t } from '../texts/index.ts';
import { Dialog } from './dialog.tsx';
import { Form } from './form.tsx';
import type { FilledFields } from './form-values.ts';

interface FormDialogProps {
  title: string;
  /** The label of its button; absent: “Save”. */
  action?: string;
  /** An error is shown in the form, and the typed values stay. */
  submit: (filled: FilledFields) => Promise<unknown>;
  /** Called after `submit`, to refetch the changed thing. */
  saved?: () => unknown;
  close: () => void;
  size?: 'small' | 'medium' | 'large';
  children: ReactNode;
}

/** A form in a dialog. It closes after `submit` and `saved`. */
export function FormDialog({ title, action = t.common.save, submit, saved, close, size, children }: FormDialogProps) {
  const submitAll = async (filled: FilledFields) => {
    await submit(filled);
    await saved?.();
  };
  return (
    <Dialog title={title} close={close} {...(size !== undefined && { size })}>
      <Form action={action} submit={submitAll} close={close}>
        {children}
      </Form>
    </Dialog>
  );
}
