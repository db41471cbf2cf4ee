import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { Loaded } from './use-load.ts';

/** A loaded thing, or why it is not here. */
export function Show<T>({
  of,
  children,
  retry,
}: {
  of: Loaded<T>;
  children: (value: T) => ComponentChildren;
  retry: () => void;
}) {
  if (of.state === 'loading') return <Loading />;
  if (of.state === 'failed') return <Failure error={of.error} retry={retry} />;
  return <>{children(of.value)}</>;
}

export function Loading() {
  return (
    <p role="status" class="quiet">
      Loading …
    </p>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: (() => void) | undefined }) {
  return (
    <div role="alert" class="failure">
      <p>{error.message}</p>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Tag({ kind, children }: { kind: 'good' | 'bad' | 'wait' | 'plain'; children: ComponentChildren }) {
  return <span class={`tag ${kind}`}>{children}</span>;
}

/** Without TLS browsers give pages no clipboard, but on this very machine: then there is no button that does nothing. */
export const canCopy = (): boolean => navigator.clipboard !== undefined;

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  if (!canCopy()) return null;
  return (
    <button
      type="button"
      class="small"
      onClick={() => void navigator.clipboard.writeText(text).then(() => setDone(true))}
    >
      {done ? 'Copied' : label}
    </button>
  );
}

/** A secret that is shown this once. */
export function Once({ what, secret, close }: { what: string; secret: string; close: () => void }) {
  return (
    <section class="once" aria-label={what}>
      <p>
        <strong>{what}</strong> It is shown this once; the gateway keeps only its hash.
      </p>
      <p>
        <code>{secret}</code>
      </p>
      <p class="row">
        <Copy text={secret} />{' '}
        <button type="button" class="small" onClick={close}>
          I have it
        </button>
      </p>
    </section>
  );
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string;
  children: (id: string) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint !== undefined && <small>{hint}</small>}
    </div>
  );
}

/** The browser's own dialog: it keeps the focus, and Escape closes it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => ref.current?.showModal(), []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={close}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

/** Below a list that is longer. */
export function More({ onClick }: { onClick: () => void }) {
  return (
    <button type="button" onClick={onClick}>
      Show more
    </button>
  );
}

/** A region that scrolls sideways on its own, reachable by keyboard. */
export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <section class="wide" aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
