import { useState } from 'preact/hooks';
import * as z from 'zod/mini';
import { askPages, tell } from '../api/client.ts';
import { type JoinToken, joinTokenSchema, type Me } from '../api/schemas.ts';
import { dateTime } from '../parts/format.ts';
import { Standing } from '../parts/standing.tsx';
import { Dialog, Empty, Failure, Field, More, Once, Show, Wide } from '../parts/ui.tsx';
import { useAction } from '../parts/use-action.ts';
import { useLoad } from '../parts/use-load.ts';
import { useMinute } from '../parts/use-minute.ts';
import { Wizard } from '../parts/wizard.tsx';

export function ProvidersPage({ me }: { me: Me }) {
  const [pages, setPages] = useState(1);
  const [tokens, again] = useLoad((signal) => askPages(joinTokenSchema, '/admin/join-tokens', pages, signal), [pages]);
  const now = useMinute();
  const [making, setMaking] = useState(false);
  const [secret, setSecret] = useState<string>();
  const { error, act } = useAction<JoinToken | undefined>((made) => {
    if (made?.token !== undefined) setSecret(made.token);
    setMaking(false);
    again();
  });
  const revoke = ({ id, name }: JoinToken) => {
    if (confirm(`Revoke “${name}”? Nobody joins with it any more, and the sessions that did end.`))
      act(tell(z.unknown(), 'DELETE', `/admin/join-tokens/${id}`).then(() => undefined));
  };
  return (
    <>
      <h1>Providers</h1>
      <h2>Join tokens</h2>
      <p>
        <button type="button" onClick={() => setMaking(true)}>
          New join token
        </button>
      </p>
      {secret !== undefined && <Once what="Your new join token." secret={secret} close={() => setSecret(undefined)} />}
      {error && !making && <Failure error={error} />}
      <Show of={tokens} retry={again}>
        {({ data, more }) =>
          data.length === 0 ? (
            <Empty>There is no join token yet. An agent needs one to join.</Empty>
          ) : (
            <>
              <Wide label="Join tokens">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Provider</th>
                      <th>Cluster</th>
                      <th>Begins with</th>
                      <th class="n">Nodes</th>
                      <th>Expires</th>
                      <th>State</th>
                      <th>Actions</th>
                    </tr>
                  </thead>
                  <tbody>
                    {data.map((token) => (
                      <tr key={token.id}>
                        <th scope="row">{token.name}</th>
                        <td>{token.provider}</td>
                        <td>{token.cluster ?? 'any'}</td>
                        <td>
                          <code>{token.prefix}…</code>
                        </td>
                        <td class="n">
                          {token.nodes}
                          {token.max_nodes === null ? '' : ` of ${token.max_nodes}`}
                        </td>
                        <td>{dateTime(token.expires_at)}</td>
                        <td>
                          <Standing
                            of={token}
                            now={now}
                            usedUp={token.max_nodes !== null && token.nodes >= token.max_nodes}
                          />
                        </td>
                        <td>
                          {token.revoked_at === null && (
                            <button
                              type="button"
                              class="small"
                              aria-label={`Revoke ${token.name}`}
                              onClick={() => revoke(token)}
                            >
                              Revoke
                            </button>
                          )}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </Wide>
              {more && <More onClick={() => setPages(pages + 1)} />}
            </>
          )
        }
      </Show>
      <h2>A job script</h2>
      <Wizard gateway={location.origin} />
      {making && (
        <Dialog title="New join token" close={() => setMaking(false)}>
          <TokenForm
            provider={me.provider}
            submit={(body) => act(tell(joinTokenSchema, 'POST', '/admin/join-tokens', body))}
          />
          {error && <Failure error={error} />}
        </Dialog>
      )}
    </>
  );
}

const ID = '[a-z0-9][a-z0-9\\-]{0,62}';

function TokenForm({ provider, submit }: { provider: string | null; submit: (body: unknown) => void }) {
  const onSubmit = (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? '').trim();
    submit({
      name: text('name'),
      provider: text('provider'),
      cluster: text('cluster') || null,
      max_nodes: Number(text('max')) || null,
    });
  };
  return (
    <form onSubmit={onSubmit}>
      <Field label="Name">{(id) => <input id={id} name="name" required maxLength={200} />}</Field>
      <Field label="Provider" hint="Lower-case letters, digits and dashes.">
        {(id) => (
          <input id={id} name="provider" required pattern={ID} value={provider ?? ''} readOnly={provider !== null} />
        )}
      </Field>
      <Field label="Cluster" hint="Empty: the agent says it.">
        {(id) => <input id={id} name="cluster" pattern={ID} />}
      </Field>
      <Field label="Most nodes" hint="Empty: any number.">
        {(id) => <input id={id} name="max" type="number" min="1" />}
      </Field>
      <button type="submit">Make it</button>
    </form>
  );
}
