import clsx from 'clsx';
import type { ReactNode } from 'react';

interface PageProps {
  title: ReactNode;
  /** One sentence below the title. */
  about?: ReactNode;
  /** Buttons next to the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** The frame of every page but the chat. */
export function Page({ title, about, actions, children }: PageProps) {
  return (
    <div className="mx-auto flex w-full max-w-6xl flex-col gap-6 px-4 py-6 sm:px-8 sm:py-8">
      <div className="flex flex-wrap items-start justify-between gap-x-6 gap-y-3">
        <div className="flex min-w-0 flex-col gap-1">
          <h1 className="text-2xl">{title}</h1>
          {about !== undefined && <p className="max-w-2xl text-muted text-pretty">{about}</p>}
        </div>
        {actions !== undefined && <div className="flex flex-wrap gap-2">{actions}</div>}
      </div>
      {children}
    </div>
  );
}

export function Section({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className="flex flex-col gap-4">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <h2 className="text-lg">{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}

export function Card({ className, children }: { className?: string; children: ReactNode }) {
  return <div className={clsx('rounded-lg border border-line bg-surface p-5', className)}>{children}</div>;
}

/** Names and values, as two columns. */
export function Facts({ children }: { children: ReactNode }) {
  return (
    <dl className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-6 gap-y-2 [&_dd]:[overflow-wrap:anywhere] [&_dt]:text-muted">
      {children}
    </dl>
  );
}

export function Code({ children, label }: { children: string; label: string }) {
  return (
    // Makes the scrolling region reachable by keyboard.
    <section aria-label={label} tabIndex={0} className="overflow-x-auto rounded-md border border-line bg-sunken">
      <pre className="w-max min-w-full p-4 font-mono text-sm leading-relaxed">{children}</pre>
    </section>
  );
}
