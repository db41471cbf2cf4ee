import { type FormEvent, useState } from 'react';
import { gateway } from '../../api/client.ts';
import { OwnProject } from '../../parts/project-select.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Page } from '../../ui/page.tsx';
import { useAction } from '../../ui/use-action.ts';

const texts = t.keys.device;

/** `otela login` on another machine shows a code. The user enters it here to give the other machine a key. */
export function DeviceLogin({ close }: { close: () => void }) {
  const { login } = useMe();
  const [done, setDone] = useState<'approved' | 'denied'>();
  // The code, and the name that the machine reports.
  const [asks, setAsks] = useState<{ code: string; name: string | null }>();
  const looked = useAction(setAsks);
  const answer = useAction((approved: boolean) => setDone(approved ? 'approved' : 'denied'));
  const look = (code: string) => {
    const body = { user_code: code };
    looked.act(
      gateway.POST('/admin/device-logins/machine', { body }).then(({ data }) => ({ code, name: data?.name ?? null })),
    );
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const filled = new FormData(event.currentTarget);
    if (asks === undefined) return look(String(filled.get('code') ?? ''));
    const approve = (event.nativeEvent as SubmitEvent).submitter?.getAttribute('value') !== 'deny';
    const project = String(filled.get('project') ?? '');
    const body = { user_code: asks.code, approve, ...(project !== '' && { project_id: project }) };
    answer.act(gateway.POST('/admin/device-logins', { body }).then(() => approve));
  };
  return (
    <Page title={texts.title} about={texts.about}>
      {done === undefined ? (
        <form onSubmit={submit} className="flex max-w-sm flex-col gap-4">
          {asks === undefined ? (
            <Field label={texts.code} hint={texts.codeHint}>
              {(id) => <Input id={id} name="code" required maxLength={32} autoComplete="off" spellCheck={false} />}
            </Field>
          ) : (
            <>
              <p className="text-pretty">{asks.name === null ? texts.unknown : texts.machine(asks.name)}</p>
              {login && <OwnProject label={t.keys.form.project} />}
            </>
          )}
          <p className="text-pretty text-muted">{texts.warning}</p>
          <div className="flex gap-3">
            {asks === undefined ? (
              <Button type="submit" kind="primary" disabled={looked.busy}>
                {texts.look}
              </Button>
            ) : (
              <>
                <Button type="submit" kind="primary" disabled={answer.busy}>
                  {texts.approve}
                </Button>
                <Button type="submit" value="deny" disabled={answer.busy}>
                  {texts.deny}
                </Button>
              </>
            )}
          </div>
          {looked.error !== undefined && <Failure error={looked.error} />}
          {answer.error !== undefined && <Failure error={answer.error} />}
        </form>
      ) : (
        <div className="flex max-w-sm flex-col items-start gap-4">
          <p>{done === 'approved' ? texts.approved : texts.denied}</p>
          <Button onClick={close}>{t.pages.keys}</Button>
        </div>
      )}
    </Page>
  );
}
