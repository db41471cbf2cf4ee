import { CSPProvider } from '@base-ui/react/csp-provider';
import { Tooltip } from '@base-ui/react/tooltip';
import { QueryClient, QueryClientProvider, useQuery } from '@tanstack/react-query';
import { Component, lazy, type ReactNode, Suspense } from 'react';
import { Redirect, Route, Router, Switch } from 'wouter';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { Problem, readGateway, send } from '../api/client.ts';
import { type Me, meSchema } from '../api/schemas.ts';
import { LoginPage } from '../pages/login.tsx';
import { SessionProvider } from '../parts/session.tsx';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Failure, Loading } from '../ui/feedback.tsx';
import { Page } from '../ui/page.tsx';
import { useHashPath, useHashSearch } from './hash-location.ts';
import { PAGES, pagesFor } from './pages.ts';
import { AppShell } from './shell.tsx';

/** A query's result is shown for this time without a new request. */
const FRESH_MS = 10_000;

/** An error response would be the same again, so only an unreachable gateway is asked once more. */
function isWorthRetrying(failures: number, error: Error): boolean {
  return failures < 1 && error instanceof Problem && (error.status === 0 || error.status >= 502);
}

const queries = new QueryClient({
  defaultOptions: { queries: { staleTime: FRESH_MS, retry: isWorthRetrying, refetchOnWindowFocus: false } },
});

export function App() {
  return (
    // Base UI would write <style> elements, which the content-security policy refuses.
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <Tooltip.Provider delay={400}>
          <Door />
        </Tooltip.Provider>
      </QueryClientProvider>
    </CSPProvider>
  );
}

const isOut = (error: Error | null) => error instanceof Problem && (error.status === 401 || error.status === 403);

function Door() {
  const me = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => readGateway(meSchema, '/admin/me', signal) });
  if (isOut(me.error)) return <LoginPage entered={() => neverRejects(me.refetch())} />;
  if (me.data === undefined)
    return (
      <main className="flex h-full items-center justify-center p-6">
        {me.error ? <Failure error={me.error} retry={() => neverRejects(me.refetch())} /> : <Loading />}
      </main>
    );
  const leave = () => {
    const over = () => {
      queries.clear();
      neverRejects(me.refetch());
    };
    send('/logout', { method: 'POST' }).then(over, over);
  };
  return <House me={me.data} leave={leave} />;
}

/** The code of a page is loaded when the page is first opened. */
const CODE = new Map(PAGES.map(({ path, load }) => [path, lazy(load)]));

function House({ me, leave }: { me: Me; leave: () => void }) {
  const pages = pagesFor(me.role);
  return (
    <SessionProvider me={me}>
      <Router hook={useHashPath} searchHook={useHashSearch}>
        <AppShell pages={pages} leave={leave}>
          <Switch>
            {pages.map(({ path }) => (
              <Route key={path} path={`/${path}/*?`}>
                <Guarded key={path} of={CODE.get(path)} />
              </Route>
            ))}
            <Route path="/">
              <Redirect to={`/${pages[0]?.path ?? ''}`} replace />
            </Route>
            <Route>
              <Page title={t.errors.notFound}>{null}</Page>
            </Route>
          </Switch>
        </AppShell>
      </Router>
    </SessionProvider>
  );
}

function Guarded({ of: Content }: { of: React.ComponentType | undefined }) {
  return (
    <Boundary>
      <Suspense fallback={<PageLoading />}>{Content && <Content />}</Suspense>
    </Boundary>
  );
}

function PageLoading() {
  return (
    <div className="p-8">
      <Loading />
    </div>
  );
}

/**
 * Wraps one page. An error that the page throws is shown in place of the page, and the navigation stays. The same
 * happens if the page's code cannot be loaded, because an update of the gateway removed it.
 */
class Boundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return (
      <Page title={t.errors.page} actions={<Button onClick={() => location.reload()}>{t.errors.reload}</Button>}>
        <Failure error={error} />
      </Page>
    );
  }
}
