import clsx from 'clsx';
import { useState } from 'react';
import { t } from '../texts/index.ts';
import { Code } from '../ui/page.tsx';
import type { ApiOperation, Content } from './document.ts';
import { exampleOf } from './example.ts';
import { Bounds, SchemaView, typeWords } from './schema-view.tsx';
import { TryIt } from './try-it.tsx';

const texts = t.apiReference;

const METHODS: Readonly<Record<string, string>> = {
  get: 'bg-accent-soft text-accent',
  post: 'bg-good-soft text-good',
  put: 'bg-wait-soft text-wait',
  patch: 'bg-wait-soft text-wait',
  delete: 'bg-bad-soft text-bad',
};

interface OperationViewProps {
  operation: ApiOperation;
  apiKey: string;
}

/** One operation. Its content is rendered when it is opened, because there are about a hundred operations. */
export function OperationView({ operation, apiKey }: OperationViewProps) {
  const { operationId, method, path, summary } = operation;
  const [open, setOpen] = useState(location.hash === `#${operationId}`);
  return (
    <details
      id={operationId}
      open={open}
      onToggle={({ currentTarget }) => setOpen(currentTarget.open)}
      className="scroll-mt-4 rounded-lg border border-line bg-surface"
    >
      <summary className="flex cursor-pointer flex-wrap items-center gap-x-3 gap-y-1 px-4 py-3">
        <span
          className={clsx('w-16 rounded-sm px-2 py-0.5 text-center font-mono font-semibold text-xs', METHODS[method])}
        >
          {method.toUpperCase()}
        </span>
        <code className="font-medium text-sm [overflow-wrap:anywhere]">{path}</code>
        <span className="min-w-0 basis-full text-muted text-sm lg:basis-0 lg:grow">{summary}</span>
      </summary>
      {open && <Opened operation={operation} apiKey={apiKey} />}
    </details>
  );
}

function Opened({ operation, apiKey }: OperationViewProps) {
  const { description, parameters = [], requestBody, responses } = operation;
  return (
    <div className="grid gap-6 border-line border-t p-4 xl:grid-cols-2">
      <div className="flex min-w-0 flex-col gap-5">
        {description !== undefined && <p className="text-muted text-sm">{description}</p>}
        {parameters.length > 0 && (
          <Part title={texts.parameters}>
            <ul className="flex flex-col divide-y divide-line">
              {parameters.map(({ name, in: place, required, description: about, schema = {} }) => (
                <li key={`${place} ${name}`} className="flex flex-col gap-1 py-2 text-sm">
                  <p className="flex flex-wrap items-baseline gap-x-2">
                    <code className="font-medium">{name}</code>
                    <span className="text-muted text-xs">
                      {typeWords(schema)}, {texts.places[place]}
                    </span>
                    {required === true && <span className="text-bad text-xs">{texts.required}</span>}
                  </p>
                  {about !== undefined && <p className="text-muted">{about}</p>}
                  <Bounds of={schema} />
                </li>
              ))}
            </ul>
          </Part>
        )}
        {requestBody !== undefined && (
          <Part title={texts.body}>
            <ContentView of={requestBody.content} />
          </Part>
        )}
        {Object.entries(responses).map(([status, { description: about, content = {} }]) => (
          <Part key={status} title={status === 'default' ? texts.errors : texts.answerOf(status, about ?? '')}>
            {status === 'default' ? (
              <p className="text-muted text-sm">{texts.envelope}</p>
            ) : (
              <ContentView of={content} shown />
            )}
          </Part>
        ))}
      </div>
      <div className="min-w-0">
        <Part title={texts.tryIt}>
          <TryIt operation={operation} apiKey={apiKey} />
        </Part>
      </div>
    </div>
  );
}

function Part({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section className="flex flex-col gap-2">
      <h3 className="font-semibold text-sm">{title}</h3>
      {children}
    </section>
  );
}

/** The schema of each media type of a body; if `shown`, each also has an example. */
function ContentView({ of, shown = false }: { of: Content; shown?: boolean }) {
  return Object.entries(of).map(([type, { schema }]) => (
    <div key={type} className="flex flex-col gap-2">
      <p className="text-muted text-xs">{type}</p>
      {schema !== undefined && <SchemaView schema={schema} />}
      {shown && schema !== undefined && (
        <details>
          <summary className="cursor-pointer text-sm">{texts.example}</summary>
          <Code label={texts.example}>{JSON.stringify(exampleOf(schema), null, 2)}</Code>
        </details>
      )}
    </div>
  ));
}
