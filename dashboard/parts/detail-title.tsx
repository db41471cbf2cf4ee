import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { ArrowLeft } from '../ui/icons.ts';

interface DetailTitleProps {
  /** Address of the list that contains the row. */
  href: string;
  /** Label of the arrow back to the list. */
  back: string;
  /** The row's state, shown next to the title when it is known. */
  state: ReactNode;
  children: ReactNode;
}

/** The title of one row's page: an arrow back to its list, its name and its state. */
export function DetailTitle({ href, back, state, children }: DetailTitleProps) {
  return (
    <span className="flex flex-wrap items-center gap-3">
      <Link href={href} aria-label={back} className="rounded-md p-1 text-muted hover:bg-hover hover:text-ink">
        <ArrowLeft className="size-5" aria-hidden />
      </Link>
      {children}
      {state !== undefined && <span className="text-base">{state}</span>}
    </span>
  );
}
