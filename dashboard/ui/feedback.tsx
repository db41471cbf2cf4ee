import clsx from 'clsx';
import type { ReactNode } from 'react';
import { Problem } from '../api/client.ts';
import { t } from '../texts/index.ts';
import { Button } from './button.tsx';
import { CircleAlert, LoaderCircle } from './icons.ts';

/** The used part of a TanStack Query result. */
interface Query<T> {
  data: T | undefined;
  error: Error | null;
  refetch: () => unknown;
}

/** Renders a loaded value, or the reason that it is missing. A loaded value stays visible while it is refetched. */
export function Show<T>({ of, children }: { of: Query<T>; children: (value: T) => ReactNode }) {
  if (of.data !== undefined) return <>{children(of.data)}</>;
  if (of.error) return <Failure error={of.error} retry={() => void of.refetch()} />;
  return <Loading />;
}

export function Loading() {
  return (
    <p role="status" className="flex items-center gap-2 text-muted">
      <LoaderCircle className="size-4 animate-spin" aria-hidden />
      {t.common.loading}
    </p>
  );
}

/** A readable message for any thrown value. */
export function messageOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return error instanceof Error && error.name !== '$ZodError' ? error.message : t.errors.unreadable;
}

export function Failure({ error, retry }: { error: unknown; retry?: (() => void) | undefined }) {
  return (
    <div role="alert" className="flex flex-wrap items-center gap-3 rounded-md bg-bad-soft px-4 py-3 text-bad">
      <CircleAlert className="size-4 shrink-0" aria-hidden />
      <p className="min-w-0 flex-1 [overflow-wrap:anywhere]">{messageOf(error)}</p>
      {retry && (
        <Button size="small" onClick={retry}>
          {t.common.tryAgain}
        </Button>
      )}
    </div>
  );
}

/** Shown in place of an empty list. Says what the list would contain, and how to fill it. */
export function Empty({ children }: { children: ReactNode }) {
  return (
    <p className="rounded-lg border border-line border-dashed px-6 py-10 text-center text-muted text-pretty">
      {children}
    </p>
  );
}

const TAGS = {
  good: 'bg-good-soft text-good',
  bad: 'bg-bad-soft text-bad',
  wait: 'bg-wait-soft text-wait',
  plain: 'bg-sunken text-muted',
  accent: 'bg-accent-soft text-accent',
} as const;

/** A state in a word or two; the color only repeats it. */
export function Tag({ kind, children }: { kind: keyof typeof TAGS; children: ReactNode }) {
  return (
    <span className={clsx('inline-flex items-center rounded-full px-2.5 py-0.5 font-medium text-xs', TAGS[kind])}>
      {children}
    </span>
  );
}
