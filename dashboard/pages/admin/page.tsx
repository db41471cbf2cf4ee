import clsx from 'clsx';
import { lazy, Suspense } from 'react';
import { Link, Redirect, useRoute } from 'wouter';
import { t } from '../../texts/index.ts';
import { Loading } from '../../ui/feedback.tsx';

const TABS = {
  users: lazy(() => import('./users.tsx')),
  projects: lazy(() => import('./projects.tsx')),
  routing: lazy(() => import('./model-routing.tsx')),
  peers: lazy(() => import('./peers.tsx')),
  settings: lazy(() => import('./settings.tsx')),
  audit: lazy(() => import('./audit.tsx')),
} as const;
const NAMES = ['users', 'projects', 'routing', 'peers', 'settings', 'audit'] as const;

/** `#/admin/users` and so on. */
export default function AdminPage() {
  const [, at] = useRoute('/admin/:tab/*?');
  const shown = NAMES.find((name) => name === at?.tab);
  if (shown === undefined) return <Redirect to="/admin/users" replace />;
  const Content = TABS[shown];
  return (
    <>
      <nav aria-label={t.pages.admin} className="overflow-x-auto border-line border-b bg-surface px-2 sm:px-6">
        <ul className="flex w-max gap-1">
          {NAMES.map((name) => (
            <li key={name}>
              <Link
                href={`/admin/${name}`}
                aria-current={name === shown ? 'page' : undefined}
                className={clsx(
                  'inline-flex h-11 items-center border-b-2 px-2.5 text-sm transition-colors',
                  name === shown
                    ? 'border-accent font-medium text-ink'
                    : 'border-transparent text-muted hover:text-ink',
                )}
              >
                {t.admin.tabs[name]}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <Suspense
        fallback={
          <div className="p-8">
            <Loading />
          </div>
        }
      >
        <Content />
      </Suspense>
    </>
  );
}
