import type { ReactNode } from 'react';
import { t } from '../texts/index.ts';
import { Dialog } from './dialog.tsx';
import type { FilledFields } from './filled.ts';
import { Form } from './form.tsx';

interface FormDialogProps {
  title: string;
  /** On its button; absent: “Save”. */
  action?: string;
  /** What it throws is shown in the form, and what was typed stays. */
  submit: (filled: FilledFields) => Promise<unknown>;
  /** Called after it: what shows the thing asks for it again. */
  saved?: () => unknown;
  close: () => void;
  size?: 'small' | 'medium' | 'large';
  children: ReactNode;
}

/** A form over the page. It closes when all is through. */
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
