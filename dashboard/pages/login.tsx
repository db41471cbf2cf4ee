import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import * as z from 'zod/mini';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { basePath } from '../api/base-path.ts';
import { readGateway, send } from '../api/client.ts';
import { listOf } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import { Button, buttonClass } from '../ui/button.tsx';
import { Failure } from '../ui/feedback.tsx';
import { Field, Input } from '../ui/field.tsx';

const institutionsSchema = listOf(z.object({ issuer: z.string(), name: z.string() }));

/** The path that is opened after the login. A user that came to enter a code of `otela login` returns to that page. */
function returnTo(): string {
  return basePath + (location.hash === '#/keys?code=' ? '/device' : '/');
}

/** The key is sent to the gateway once; the browser keeps only a cookie that scripts cannot read. */
export function LoginPage({ entered }: { entered: () => void }) {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const institutions = useQuery({
    queryKey: ['institutions'],
    queryFn: ({ signal }) => readGateway(institutionsSchema, '/login/providers', signal),
  });
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get('key') ?? '').trim();
    setBusy(true);
    try {
      const headers = { 'content-type': 'application/json' };
      await send('/login/key', { method: 'POST', headers, body: JSON.stringify({ key }) });
      entered();
    } catch (cause) {
      setError(cause);
    } finally {
      setBusy(false);
    }
  };
  const known = institutions.data?.data ?? [];
  return (
    <main className="flex min-h-full items-center justify-center bg-sunken p-4">
      <div className="flex w-full max-w-sm flex-col gap-6 rounded-xl border border-line bg-surface p-8 shadow-raised">
        <div className="flex flex-col gap-1.5">
          <h1 className="text-2xl">OpenTela</h1>
          <p className="text-muted text-pretty">{t.login.about}</p>
        </div>
        {known.map(({ issuer, name }) => (
          <a
            key={issuer}
            className={buttonClass({ kind: 'primary' })}
            href={`${basePath}/login?issuer=${encodeURIComponent(issuer)}&return_to=${encodeURIComponent(returnTo())}`}
          >
            {t.login.institution(name)}
          </a>
        ))}
        <form onSubmit={(event) => neverRejects(submit(event))} className="flex flex-col gap-4">
          <Field label={known.length === 0 ? t.login.key : t.login.orKey} hint={t.login.keyHint}>
            {(id) => (
              <Input id={id} name="key" type="password" autoComplete="off" required spellCheck={false} autoFocus />
            )}
          </Field>
          <Button type="submit" kind={known.length === 0 ? 'primary' : 'secondary'} disabled={busy}>
            {t.login.submit}
          </Button>
        </form>
        {error !== undefined && <Failure error={error} />}
      </div>
    </main>
  );
}
