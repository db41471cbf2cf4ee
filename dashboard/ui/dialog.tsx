import { AlertDialog } from '@base-ui/react/alert-dialog';
import { Dialog as Base } from '@base-ui/react/dialog';
import clsx from 'clsx';
import { type ReactNode, useRef, useState } from 'react';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { t } from '../texts/index.ts';
import { Button, IconButton } from './button.tsx';
import { Failure } from './feedback.tsx';
import { X } from './icons.ts';

const BACKDROP =
  'fixed inset-0 z-40 bg-[#000]/45 transition-opacity data-ending-style:opacity-0 data-starting-style:opacity-0';
const POPUP =
  'fixed top-1/2 left-1/2 z-40 flex max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 flex-col overflow-hidden rounded-lg border border-line bg-raised shadow-raised transition data-ending-style:opacity-0 data-starting-style:opacity-0 data-starting-style:scale-98';

interface DialogProps {
  title: string;
  close: () => void;
  /** Maximum width of the dialog. */
  size?: 'small' | 'medium' | 'large';
  children: ReactNode;
  /** Shown below the part that scrolls. */
  footer?: ReactNode;
}

const WIDTHS = { small: 'max-w-md', medium: 'max-w-xl', large: 'max-w-4xl' };

const FIELDS = 'input:not([type=hidden], [type=file]), textarea, select';

/**
 * Open while it is rendered. Its first field gets the focus. It traps the focus, Escape closes it, and the focus then
 * returns to its previous element.
 */
export function Dialog({ title, close, size = 'medium', children, footer }: DialogProps) {
  const content = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open onOpenChange={(open) => open || close()}>
      <Base.Portal>
        <Base.Backdrop className={BACKDROP} />
        <Base.Popup
          className={clsx(POPUP, WIDTHS[size])}
          initialFocus={() => content.current?.querySelector<HTMLElement>(FIELDS) ?? true}
        >
          <div className="flex items-center justify-between gap-4 border-line border-b py-3 pr-3 pl-5">
            <Base.Title className="min-w-0 font-semibold text-lg [overflow-wrap:anywhere]">{title}</Base.Title>
            <Base.Close render={<IconButton label={t.common.close} />}>
              <X />
            </Base.Close>
          </div>
          <div ref={content} className="min-h-0 overflow-y-auto p-5">
            {children}
          </div>
          {footer !== undefined && (
            <div className="flex flex-wrap justify-end gap-2 border-line border-t px-5 py-3">{footer}</div>
          )}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

interface ConfirmProps {
  title: string;
  /** Explains the consequences of confirming. */
  children: ReactNode;
  /** Label of the button that confirms: a verb, as in “Revoke”. */
  action: string;
  /** If it succeeds, the dialog closes; an error is shown in it. */
  act: () => Promise<unknown>;
  close: () => void;
  kind?: 'primary' | 'danger';
}

/** Asks before an action that cannot be undone. */
export function Confirm({ title, children, action, act, close, kind = 'danger' }: ConfirmProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const yes = async () => {
    setBusy(true);
    try {
      await act();
      close();
    } catch (cause) {
      setError(cause);
      setBusy(false);
    }
  };
  return (
    <AlertDialog.Root open onOpenChange={(open) => open || close()}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className={BACKDROP} />
        <AlertDialog.Popup className={clsx(POPUP, WIDTHS.small)}>
          <div className="flex flex-col gap-3 overflow-y-auto p-5">
            <AlertDialog.Title className="font-semibold text-lg">{title}</AlertDialog.Title>
            <AlertDialog.Description className="text-muted" render={<div />}>
              {children}
            </AlertDialog.Description>
            {error !== undefined && <Failure error={error} />}
          </div>
          <div className="flex flex-wrap justify-end gap-2 px-5 pb-4">
            <AlertDialog.Close render={<Button />}>{t.common.cancel}</AlertDialog.Close>
            <Button kind={kind} disabled={busy} onClick={() => neverRejects(yes())}>
              {action}
            </Button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
