import { useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { askPages, tell } from '../api/client.ts';
import { type Key, keySchema, type Me } from '../api/schemas.ts';
import { dateTime } from '../parts/format.ts';
import { isGood, Standing } from '../parts/standing.tsx';
import { Dialog, Empty, Failure, Field, More, Once, Show, Wide } from '../parts/ui.tsx';
import { useAction } from '../parts/use-action.ts';
import { useLoad } from '../parts/use-load.ts';
import { useMinute } from '../parts/use-minute.ts';

export function KeysPage({ me }: { me: Me }) {
  const now = useMinute();
  const [pages, setPages] = useState(1);
  const [keys, again] = useLoad((signal) => askPages(keySchema, '/admin/keys', pages, signal), [pages]);
  const [making, setMaking] = useState(false);
  const [secret, setSecret] = useState<string>();
  const { error, act } = useAction<string | undefined>((made) => {
    if (made !== undefined) setSecret(made);
    setMaking(false);
    again();
  });
  if (!me.login && me.role !== 'operator')
    return (
      <>
        <h1>Keys</h1>
        <Empty>A key cannot make other keys. Log in with your institution to make and revoke your own.</Empty>
      </>
    );
  return (
    <>
      <h1>Keys</h1>
      <p>
        <button type="button" onClick={() => setMaking(true)}>
          New key
        </button>
      </p>
      {secret !== undefined && <Once what="Your new key." secret={secret} close={() => setSecret(undefined)} />}
      {error && !making && <Failure error={error} />}
      <Show of={keys} retry={again}>
        {({ data, more }) =>
          data.length === 0 ? (
            <Empty>There is no key yet.</Empty>
          ) : (
            <>
              <Wide label="Keys">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Begins with</th>
                      <th>Limits</th>
                      <th>Trusted providers</th>
                      <th>Last used</th>
                      <th>Expires</th>
                      <th>State</th>
                      <th>Actions</th>
                    </tr>
                  </thead>
                  <tbody>
                    {data.map((key) => (
                      <Row key={key.id} one={key} now={now} act={act} />
                    ))}
                  </tbody>
                </table>
              </Wide>
              {more && <More onClick={() => setPages(pages + 1)} />}
            </>
          )
        }
      </Show>
      {making && (
        <Dialog title="New key" close={() => setMaking(false)}>
          <KeyForm submit={(body) => act(tell(keySchema, 'POST', '/admin/keys', body).then(({ key }) => key))} />
          {error && <Failure error={error} />}
        </Dialog>
      )}
    </>
  );
}

function limitsOf({ limits }: Key): string {
  if (limits === null) return '–';
  const said = [
    limits.requests_per_minute && `${limits.requests_per_minute} requests/min`,
    limits.tokens_per_minute && `${limits.tokens_per_minute} tokens/min`,
    limits.concurrent_requests && `${limits.concurrent_requests} at once`,
    limits.tokens_per_month && `${limits.tokens_per_month} tokens/month`,
  ];
  return said.filter(Boolean).join(', ') || '–';
}

function Row({ one, now, act }: { one: Key; now: number; act: (work: Promise<string | undefined>) => void }) {
  const rotate = () => act(tell(keySchema, 'POST', `/admin/keys/${one.id}/rotate`, {}).then(({ key }) => key));
  const revoke = () => {
    if (confirm(`Revoke “${one.name}”? Whoever uses it is refused within seconds.`))
      act(tell(z.unknown(), 'DELETE', `/admin/keys/${one.id}`).then(() => undefined));
  };
  return (
    <tr>
      <th scope="row">{one.name}</th>
      <td>
        <code>{one.prefix}…</code>
      </td>
      <td>{limitsOf(one)}</td>
      <td>{one.trusted_providers?.join(', ') ?? 'as the gateway says'}</td>
      <td>{dateTime(one.last_used_at)}</td>
      <td>{dateTime(one.expires_at)}</td>
      <td>
        <Standing of={one} now={now} />
      </td>
      <td>
        {isGood(one, now) && (
          <div class="row whole">
            <button type="button" class="small" onClick={rotate} aria-label={`Rotate ${one.name}`}>
              Rotate
            </button>
            <button type="button" class="small" onClick={revoke} aria-label={`Revoke ${one.name}`}>
              Revoke
            </button>
          </div>
        )}
      </td>
    </tr>
  );
}

function KeyForm({ submit }: { submit: (body: unknown) => void }) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        submit(keyBody(new FormData(event.currentTarget)));
      }}
    >
      <Field label="Name" hint="What it is for.">
        {(id) => <input id={id} name="name" required maxLength={200} />}
      </Field>
      <Field label="Requests per minute">{(id) => <input id={id} name="rpm" type="number" min="1" />}</Field>
      <Field label="Tokens per minute">{(id) => <input id={id} name="tpm" type="number" min="1" />}</Field>
      <Field label="Requests at once">{(id) => <input id={id} name="once" type="number" min="1" />}</Field>
      <Field label="Tokens per month">{(id) => <input id={id} name="month" type="number" min="1" />}</Field>
      <Field label="Trusted providers" hint="Ids with commas between; empty: as the gateway says.">
        {(id) => <input id={id} name="trusted" placeholder="eth, psi@peer" />}
      </Field>
      <Field label="Expires">{(id) => <input id={id} name="expires" type="date" />}</Field>
      <button type="submit">Make it</button>
    </form>
  );
}

/** What the form says, as the gateway wants it; what is empty is left out. */
function keyBody(form: FormData): Record<string, unknown> {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const number = (name: string) => (text(name) === '' ? undefined : Number(text(name)));
  const limits = {
    requests_per_minute: number('rpm'),
    tokens_per_minute: number('tpm'),
    concurrent_requests: number('once'),
    tokens_per_month: number('month'),
  };
  const trusted = text('trusted')
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
  return {
    name: text('name'),
    ...(Object.values(limits).some((one) => one !== undefined) ? { limits } : {}),
    ...(trusted.length > 0 ? { trusted_providers: trusted } : {}),
    ...(text('expires') === '' ? {} : { expires_at: `${text('expires')}T23:59:59Z` }),
  };
}
