import { CSPProvider } from '@base-ui/react/csp-provider';
import { Tooltip } from '@base-ui/react/tooltip';
import { QueryClient, QueryClientProvider, useQuery } from '@tanstack/react-query';
import { useDeferredValue, useEffect, useState } from 'react';
import { basePath } from '../api/base-path.ts';
import { t } from '../texts/index.ts';
import { buttonClass } from '../ui/button.tsx';
import { Empty, Show } from '../ui/feedback.tsx';
import { Field, Input } from '../ui/field.tsx';
import { Page } from '../ui/page.tsx';
import { type ApiOperation, operationsOf } from './document.ts';
import { OperationView } from './operation-view.tsx';

const texts = t.apiReference;
const queries = new QueryClient();

/** `/docs`: the reference of this gateway's API, from its own OpenAPI document. It needs no login. */
export default function ApiReference() {
  useEffect(() => {
    document.title = `${texts.title} · OpenTela`;
  }, []);
  return (
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <Tooltip.Provider delay={400}>
          <main className="h-dvh overflow-y-auto">
            <Reference />
          </main>
        </Tooltip.Provider>
      </QueryClientProvider>
    </CSPProvider>
  );
}

function Reference() {
  const operations = useQuery({ queryKey: ['openapi'], queryFn: ({ signal }) => operationsOf(signal) });
  const [query, setQuery] = useState('');
  const [apiKey, setApiKey] = useState('');
  const words = useDeferredValue(query);
  return (
    <Page
      title={texts.title}
      about={texts.about}
      actions={
        <>
          <a className={buttonClass()} href={`${basePath}/openapi.json`}>
            openapi.json
          </a>
          <a className={buttonClass()} href={`${basePath}/`}>
            {texts.back}
          </a>
        </>
      }
    >
      <div className="grid gap-4 sm:grid-cols-2">
        <Field label={texts.find}>
          {(id) => (
            <Input
              id={id}
              type="search"
              value={query}
              placeholder={texts.findHint}
              onChange={(event) => setQuery(event.currentTarget.value)}
            />
          )}
        </Field>
        <Field label={texts.key} hint={texts.keyHint}>
          {(id) => (
            <Input
              id={id}
              type="password"
              value={apiKey}
              autoComplete="off"
              placeholder="sk-otela-…"
              onChange={(event) => setApiKey(event.currentTarget.value.trim())}
            />
          )}
        </Field>
      </div>
      <Show of={operations}>{(tags) => <Groups tags={tags} words={words} apiKey={apiKey} />}</Show>
    </Page>
  );
}

interface GroupsProps {
  tags: ReadonlyMap<string, ApiOperation[]>;
  words: string;
  apiKey: string;
}

function Groups({ tags, words, apiKey }: GroupsProps) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...tags].flatMap(([tag, operations]) => {
    const some = operations.filter(({ method, path, summary }) => {
      const text = `${method} ${path} ${summary}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    return some.length === 0 ? [] : [[tag, some] as const];
  });
  useEffect(() => {
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }, []);
  if (found.length === 0) return <Empty>{texts.notFound}</Empty>;
  return (
    <>
      <nav aria-label={texts.groups}>
        <ul className="flex flex-wrap gap-2">
          {found.map(([tag, some]) => (
            <li key={tag}>
              <a className={buttonClass({ kind: 'ghost', size: 'small' })} href={`#${tag}`}>
                {tag} <span className="text-muted">{some.length}</span>
              </a>
            </li>
          ))}
        </ul>
      </nav>
      {found.map(([tag, some]) => (
        <section key={tag} aria-labelledby={tag} className="flex flex-col gap-2">
          <h2 id={tag} className="scroll-mt-4 text-lg">
            {tag}
          </h2>
          {some.map((operation) => (
            <OperationView key={operation.operationId} operation={operation} apiKey={apiKey} />
          ))}
        </section>
      ))}
    </>
  );
}
