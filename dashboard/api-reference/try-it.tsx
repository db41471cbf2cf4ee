import { type FormEvent, useState } from 'react';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { gatewayUrl } from '../api/base-path.ts';
import { t } from '../texts/index.ts';
import { Button } from '../ui/button.tsx';
import { Failure, Tag } from '../ui/feedback.tsx';
import { Field, Input, Textarea } from '../ui/field.tsx';
import { WIDE } from '../ui/form.tsx';
import { FilledFields } from '../ui/form-values.ts';
import { Code } from '../ui/page.tsx';
import type { ApiOperation, Parameter } from './document.ts';
import { exampleOf } from './example.ts';
import { FormBodyFields, formBodyOf } from './form-body.tsx';

const texts = t.apiReference;

/** Characters of a response that are shown. An endless stream is cut off here too. */
const SHOWN_MAX_CHARS = 64 * 1024;
const HEADERS_SHOWN = /^(content-type|x-otela-|x-ratelimit-|x-request-id|retry-after|server-timing)/;

interface Answer {
  status: number;
  ms: number;
  headers: string;
  text: string;
}

interface TryItProps {
  operation: ApiOperation;
  /** API key of the request; empty: the request uses this browser's login. */
  apiKey: string;
}

/** Sends the filled-in request and shows the gateway's response. */
export function TryIt({ operation, apiKey }: TryItProps) {
  const { method, path, parameters = [], requestBody } = operation;
  const json = requestBody?.content['application/json'];
  const form = json === undefined ? requestBody?.content['multipart/form-data']?.schema : undefined;
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  const [running, setRunning] = useState<AbortController>();
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const abort = new AbortController();
    setRunning(abort);
    setAnswer(undefined);
    setError(undefined);
    try {
      const body =
        form !== undefined
          ? formBodyOf(form, fields)
          : json !== undefined
            ? new FilledFields(fields).text('body')
            : undefined;
      const request = requestOf(operation, new FilledFields(fields), apiKey, body);
      await send(request, abort, setAnswer);
    } catch (cause) {
      if (!abort.signal.aborted) setError(cause);
    } finally {
      setRunning(undefined);
    }
  };
  return (
    <div className="flex flex-col gap-4">
      <form onSubmit={(event) => neverRejects(submit(event))} className="grid gap-4 sm:grid-cols-2">
        {parameters.map((one) => (
          <ParameterField key={`${one.in} ${one.name}`} of={one} />
        ))}
        {form !== undefined && <FormBodyFields schema={form} />}
        {json !== undefined && (
          <Field label={texts.body} className={WIDE}>
            {(id) => (
              <Textarea
                id={id}
                name="body"
                rows={8}
                spellCheck={false}
                className="font-mono text-sm"
                defaultValue={JSON.stringify(json.example ?? exampleOf(json.schema ?? {}), null, 2)}
              />
            )}
          </Field>
        )}
        {method !== 'get' && <p className={`text-sm text-wait ${WIDE}`}>{texts.acts}</p>}
        <div className={`flex gap-2 ${WIDE}`}>
          <Button type="submit" kind="primary" disabled={running !== undefined}>
            {texts.send(method.toUpperCase(), path)}
          </Button>
          {running !== undefined && <Button onClick={() => running.abort()}>{t.chat.stop}</Button>}
        </div>
      </form>
      {error !== undefined && <Failure error={error} />}
      {answer !== undefined && (
        <div className="flex flex-col gap-2" role="status">
          <p className="flex items-center gap-3 text-sm">
            <Tag kind={answer.status < 400 ? 'good' : 'bad'}>{answer.status}</Tag>
            <span className="text-muted">{texts.took(answer.ms)}</span>
          </p>
          {answer.headers !== '' && <Code label={texts.headers}>{answer.headers}</Code>}
          {answer.text !== '' && <Code label={texts.answer}>{answer.text}</Code>}
        </div>
      )}
    </div>
  );
}

function ParameterField({ of: { name, in: place, required = false, description, schema } }: { of: Parameter }) {
  const known = schema?.default === undefined ? undefined : String(schema.default);
  return (
    <Field label={`${name} (${texts.places[place]})`} {...(description !== undefined && { hint: description })}>
      {(id) => <Input id={id} name={`${place} ${name}`} required={required} placeholder={known} spellCheck={false} />}
    </Field>
  );
}

function requestOf(
  operation: ApiOperation,
  filled: FilledFields,
  apiKey: string,
  body: string | FormData | undefined,
): Request {
  const { method, path, parameters = [] } = operation;
  const headers = new Headers();
  const url = new URL(gatewayUrl + path);
  for (const { name, in: place } of parameters) {
    const value = filled.text(`${place} ${name}`);
    if (value === '') continue;
    if (place === 'path') url.pathname = url.pathname.replace(encodeURI(`{${name}}`), encodeURIComponent(value));
    else if (place === 'query') url.searchParams.set(name, value);
    else headers.set(name, value);
  }
  if (apiKey !== '') headers.set('authorization', `Bearer ${apiKey}`);
  // The type of a form contains a boundary, which the browser sets.
  if (typeof body === 'string') headers.set('content-type', 'application/json');
  return new Request(url, {
    method: method.toUpperCase(),
    headers,
    // A request with a key must not also carry this browser's login.
    credentials: apiKey === '' ? 'same-origin' : 'omit',
    ...(body !== undefined && { body }),
  });
}

/** Calls `show` as more of the response arrives. */
async function send(request: Request, abort: AbortController, show: (answer: Answer) => void): Promise<void> {
  const startedAt = performance.now();
  const response = await fetch(request, { signal: abort.signal });
  const ms = Math.round(performance.now() - startedAt);
  const headers = [...response.headers]
    .filter(([name]) => HEADERS_SHOWN.test(name))
    .map(([name, value]) => `${name}: ${value}`)
    .join('\n');
  const known = { status: response.status, ms, headers };
  show({ ...known, text: '' });
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const next = await reader?.read();
    if (next === undefined || next.done) break;
    text += decoder.decode(next.value, { stream: true });
    show({ ...known, text: text.slice(0, SHOWN_MAX_CHARS) });
    if (text.length > SHOWN_MAX_CHARS) return abort.abort();
  }
  show({ ...known, text: indented(text) });
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
