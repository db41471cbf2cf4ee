import { useEffect, useState } from 'preact/hooks';
import { ask, Problem, send } from './api/client.ts';
import { NOT_YET, watchNodes } from './api/live.ts';
import { type Me, meSchema } from './api/schemas.ts';
import { ChatPage } from './pages/chat.tsx';
import { KeysPage } from './pages/keys.tsx';
import { LoginPage } from './pages/login.tsx';
import { ModelsPage } from './pages/models.tsx';
import { NodesPage } from './pages/nodes.tsx';
import { ProvidersPage } from './pages/providers.tsx';
import { UsagePage } from './pages/usage.tsx';
import type { World } from './pages/world.ts';
import { useRoute } from './parts/route.ts';
import { Failure } from './parts/ui.tsx';

interface Page {
  id: string;
  title: string;
  /** Least role. */
  role: Me['role'];
  show(world: World, query: URLSearchParams): preact.JSX.Element;
}

const PAGES: readonly Page[] = [
  { id: 'models', title: 'Models', role: 'consumer', show: ({ live }) => <ModelsPage live={live} /> },
  {
    id: 'chat',
    title: 'Chat',
    role: 'consumer',
    show: ({ live }, query) => <ChatPage live={live} model={query.get('model') ?? ''} />,
  },
  { id: 'keys', title: 'Keys', role: 'consumer', show: ({ me }) => <KeysPage me={me} /> },
  { id: 'usage', title: 'Usage', role: 'consumer', show: ({ me }) => <UsagePage me={me} /> },
  { id: 'nodes', title: 'Nodes', role: 'provider', show: (world) => <NodesPage {...world} /> },
  { id: 'providers', title: 'Providers', role: 'provider', show: ({ me }) => <ProvidersPage me={me} /> },
];

const RANK: Readonly<Record<Me['role'], number>> = { consumer: 0, provider: 1, operator: 2 };

type Session = { state: 'asking' } | { state: 'out' } | { state: 'in'; me: Me } | { state: 'failed'; error: Error };

export function App() {
  const [session, setSession] = useState<Session>({ state: 'asking' });
  const enter = () => {
    ask(meSchema, '/admin/me').then(
      (me) => setSession({ state: 'in', me }),
      (error: unknown) => {
        const out = error instanceof Problem && (error.status === 401 || error.status === 403);
        setSession(
          out
            ? { state: 'out' }
            : { state: 'failed', error: error instanceof Error ? error : new Error(String(error)) },
        );
      },
    );
  };
  useEffect(enter, []);
  if (session.state === 'asking')
    return (
      <p role="status" class="quiet lonely">
        Loading …
      </p>
    );
  if (session.state === 'failed')
    return (
      <main class="lonely">
        <Failure error={session.error} retry={enter} />
      </main>
    );
  if (session.state === 'out') return <LoginPage entered={enter} />;
  const leave = () => void send('/logout', { method: 'POST' }).finally(() => setSession({ state: 'out' }));
  return <House me={session.me} leave={leave} />;
}

function House({ me, leave }: { me: Me; leave: () => void }) {
  const route = useRoute();
  const [live, setLive] = useState(NOT_YET);
  useEffect(() => watchNodes(setLive), []);
  const mine = PAGES.filter(({ role }) => RANK[me.role] >= RANK[role]);
  const page = mine.find(({ id }) => id === route.page) ?? mine[0];
  useEffect(() => {
    document.title = `${page?.title ?? ''} · OpenTela`;
  }, [page]);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the page
      </button>
      <header>
        <strong class="brand">OpenTela</strong>
        <nav aria-label="Pages">
          {mine.map(({ id, title }) => (
            <a key={id} href={`#/${id}`} aria-current={id === page?.id ? 'page' : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <span class={`connection ${live.connection}`} role="status">
          {live.connection === 'live'
            ? 'live'
            : live.connection === 'lost'
              ? 'connection lost, trying again'
              : 'connecting'}
        </span>
        <span class="who">{me.role}</span>
        <button type="button" class="small" onClick={leave}>
          Log out
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        {page?.show({ me, live }, route.query)}
      </main>
    </>
  );
}
