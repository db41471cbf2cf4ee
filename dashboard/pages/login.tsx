import { useState } from 'preact/hooks';
import { send } from '../api/client.ts';
import { Failure, Field } from '../parts/ui.tsx';

/** The key goes to the gateway once; what the browser keeps is a cookie that no script can read. */
export function LoginPage({ entered }: { entered: () => void }) {
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get('key') ?? '').trim();
    setBusy(true);
    try {
      const headers = { 'content-type': 'application/json' };
      await send('/login/key', { method: 'POST', headers, body: JSON.stringify({ key }) });
      entered();
    } catch (cause) {
      setError(cause instanceof Error ? cause : new Error(String(cause)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="lonely">
      <h1>OpenTela</h1>
      <p>Language models on your institution's own machines.</p>
      <p>
        <a class="button" href="/login?return_to=/">
          Log in with your institution
        </a>
      </p>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Or with an API key" hint="sk-otela-…">
          {(id) => <input id={id} name="key" type="password" autocomplete="off" required spellcheck={false} />}
        </Field>
        <button type="submit" disabled={busy}>
          Log in
        </button>
      </form>
      {error && <Failure error={error} />}
    </main>
  );
}
